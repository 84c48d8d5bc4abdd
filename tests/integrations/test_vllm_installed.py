import pytest

from warmturn.errors import InvalidInput, PeerError
from warmturn.integrations.vllm_installed import find_vllm, installed_version


def program(folder, python):
    """A folder as an environment's bin: a `vllm` that is never started, and a `python`."""
    for name, text in {"vllm": "#!/bin/sh\nexit 9\n", "python": python}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder / "vllm"


def test_the_version_is_that_of_the_python_beside_the_program(tmp_path):
    found = find_vllm(str(program(tmp_path, "#!/bin/sh\necho 0.32.0+cpu\n")))
    assert installed_version(found) == "0.32.0"


def test_a_program_that_is_not_there_is_said_with_the_option_that_names_it():
    with pytest.raises(InvalidInput, match=r"no program 'no-such-vllm'.*--vllm"):
        find_vllm("no-such-vllm")


def test_a_python_that_knows_no_vllm_is_said(tmp_path):
    vllm = program(tmp_path, "#!/bin/sh\necho 'No package metadata' >&2; exit 1\n")
    with pytest.raises(PeerError, match="No package metadata"):
        installed_version(vllm)


def test_a_program_without_a_python_is_said(tmp_path):
    vllm = program(tmp_path, "")
    (tmp_path / "python").unlink()
    with pytest.raises(PeerError, match="cannot be told"):
        installed_version(vllm)
