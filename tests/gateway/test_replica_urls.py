import pytest

from warmturn.errors import InvalidInput
from warmturn.gateway.config import ReplicaPart
from warmturn.gateway.replica_urls import ReplicaUrl, api_key_of, named, read_url, resolved


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("http://h:8000", ReplicaUrl("h", 8000, False, "")),
        ("http://h:8000/v1/", ReplicaUrl("h", 8000, False, "")),
        ("https://h", ReplicaUrl("h", 443, True, "")),
        ("http://h/engines/a/v1", ReplicaUrl("h", 80, False, "/engines/a")),
        ("http://[::1]:1", ReplicaUrl("::1", 1, False, "")),
        ("dns+http://h:2", ReplicaUrl("h", 2, False, "")),
    ],
)
def test_urls_are_read(url, read):
    assert read_url(url) == read


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:80",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://h:70000",
        "http://h?a=b",
        "http://h/a b",
    ],
)
def test_other_urls_are_refused_with_what_is_taken(url):
    with pytest.raises(InvalidInput, match="give http://HOST:PORT"):
        read_url(url)


def test_a_password_in_a_url_is_refused_and_not_shown():
    with pytest.raises(InvalidInput) as error:
        read_url("http://user:secret@h")
    assert "secret" not in str(error.value)


def test_the_name_is_where_it_is_and_a_star_is_its_host():
    part = named(ReplicaPart(url="http://h:8000", events="tcp://*:5557", replay="tcp://*:5558"))
    assert (part.name, part.events, part.replay) == ("h:8000", "tcp://h:5557", "tcp://h:5558")
    assert named(ReplicaPart(url="http://[::1]:1")).name == "[::1]:1"


def test_replay_without_events_is_refused():
    with pytest.raises(InvalidInput, match="without `events`"):
        named(ReplicaPart(url="http://h", replay="tcp://*:1"))


def test_one_address_of_a_name_is_a_replica_of_its_own():
    part = ReplicaPart(url="dns+https://fleet:8000", events="tcp://*:5557", weight=2)
    one = resolved(part, "10.0.0.7")
    assert (one.url, one.name) == ("https://10.0.0.7:8000", "10.0.0.7:8000")
    assert (one.events, one.server_hostname, one.weight) == ("tcp://10.0.0.7:5557", "fleet", 2)


def test_a_key_comes_from_the_environment_or_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("ENGINE_KEY", "sk-1\n")
    (tmp_path / "key").write_text("sk-2\nrest\n")
    assert api_key_of(ReplicaPart(url="http://h", api_key_env="ENGINE_KEY")) == "sk-1"
    assert api_key_of(ReplicaPart(url="http://h", api_key_file=tmp_path / "key")) == "sk-2"
    assert api_key_of(ReplicaPart(url="http://h")) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY is empty or not set"),
        ({"api_key_file": "/no/such/file"}, "/no/such/file"),
        ({"api_key_file": "/dev/null"}, "is empty"),
        ({"api_key_file": "/dev/null", "api_key_env": "A"}, "keep one"),
    ],
)
def test_a_key_that_is_not_there_is_an_error_that_names_the_place(fields, words):
    from pathlib import Path

    fields = {k: Path(v) if k.endswith("file") else v for k, v in fields.items()}
    with pytest.raises(InvalidInput, match=words):
        api_key_of(ReplicaPart(url="http://h", **fields))


def test_a_key_no_header_can_carry_is_refused_and_not_shown(monkeypatch):
    monkeypatch.setenv("ENGINE_KEY", "sk-\x07evil")
    with pytest.raises(InvalidInput) as error:
        api_key_of(ReplicaPart(url="http://h", api_key_env="ENGINE_KEY"))
    assert "evil" not in str(error.value)
