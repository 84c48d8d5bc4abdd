from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from warmturn.errors import InvalidInput
from warmturn.gateway import config as parts
from warmturn.gateway.config import Config, ReplicaPart
from warmturn.gateway.config_file import accepted_values, read_config, table_of
from warmturn.router import POLICY_NAMES
from warmturn.session.tenant import Anonymous

WHOLE = """
[listen]
host = "0.0.0.0"
port = 80
allowed_paths = ["/tokenize"]

[admin]
token_file = "secrets/token"

[[replicas]]
url = "http://10.0.0.5:8000"
name = "a"
weight = 2
events = "tcp://*:5557"
models = ["qwen"]

[[replicas]]
url = "dns+http://fleet:8000"

[[models]]
name = "qwen"
aliases = ["gpt-4o"]
tokenizer = "/models/qwen"

[routing]
policy = "affinity"
shadow = "price"

[identity]
header = "authorization"
scheme = "bearer"
anonymous = "session"

[limits]
max_body_bytes = 1000

[health]
interval_s = 0.5
"""


def read(tmp_path, text):
    (tmp_path / "gateway.toml").write_text(text)
    return read_config(tmp_path / "gateway.toml")


def test_a_whole_file_becomes_parts(tmp_path):
    config = read(tmp_path, WHOLE)
    assert config.listen.allowed_paths == ("/tokenize",)
    assert config.admin.token_file == tmp_path / "secrets" / "token"
    assert [one.weight for one in config.replicas] == [2.0, 1.0]
    assert config.models[0].tokenizer == Path("/models/qwen")
    assert config.identity.anonymous is Anonymous.SESSION
    assert config.limits.max_body_bytes == 1000
    assert config.decision_log.file is None


def test_an_empty_file_is_the_defaults(tmp_path):
    assert read(tmp_path, "") == Config()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[listen]\nprot = 3", "listen.prot is no key of the configuration; there are host, port"),
        ("[lissten]", "lissten is no key of the configuration; there are listen, admin"),
        ("[listen]\nport = 70000", "listen.port: .*at least 0 and at most 65,535"),
        (
            '[listen]\nport = "80"',
            "listen.port: expected `int`, got `str`; it takes a whole number",
        ),
        ("listen = 3", "listen: .*it takes a table"),
        ('[routing]\npolicy = "best"', "routing.policy: .*one of price, affinity, prefix"),
        ('[routing]\nshadow = "best"', "routing.shadow: .*one of price, affinity, prefix"),
        ('[[replicas]]\nname = "x"', r"replicas\[0\].url is missing"),
        ('[[replicas]]\nurl = "x"\nweight = 0', r"replicas\[0\].weight: .*a number above 0"),
        ('[[replicas]]\nurl = "x"\nfoo = 1', r"replicas\[0\].foo is no key.*url, name, weight"),
        ('[[replicas]]\nurl = ""', r"replicas\[0\].url: .*it takes a text of 1 to 256 characters"),
        ('[[models]]\nname = "a"\naliases = [1]', r"models\[0\].aliases\[0\]: .*a list of texts"),
        ('[identity]\nanonymous = "maybe"', "one of refuse, session, shared"),
        ('[health]\npath = "health"', "health.path: .*beginning with /"),
        ("[health]\ninterval_s = true", "health.interval_s: .*a number above 0"),
        ("[limits]\nmax_body_bytes = 1.5", "limits.max_body_bytes: .*a whole number"),
        ("[limits", "is not TOML"),
        ('x = "\\ud800"', "is not TOML"),
    ],
)
def test_a_mistake_is_named_by_its_path_and_what_is_taken(tmp_path, text, words):
    with pytest.raises(InvalidInput, match=words) as error:
        read(tmp_path, text)
    assert "gateway.toml" in str(error.value)


def test_a_file_that_is_not_there_or_no_text_is_one_clear_error(tmp_path):
    with pytest.raises(InvalidInput, match="No such file"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "gateway.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="is not TOML"):
        read_config(tmp_path / "gateway.toml")


def test_every_policy_can_be_configured():
    """The names are written out in the configuration, so that its errors can list them."""
    assert get_args(parts.PolicyName) == POLICY_NAMES


def all_keys(cls, at=""):
    """Yield path and type of every key."""
    for one in fields(cls):
        kind = get_type_hints(cls, include_extras=True)[one.name]
        inner = next((k for k in (kind, *get_args(kind)) if is_dataclass(k)), None)
        if inner is None:
            yield f"{at}{one.name}", kind
        else:
            yield from all_keys(inner, f"{at}{one.name}.")


@pytest.mark.parametrize(("path", "kind"), list(all_keys(Config)))
def test_what_each_key_takes_can_be_said(path, kind):
    assert table_of(Config, path) == kind
    assert accepted_values(kind)


def test_secrets_are_named_never_written():
    names = {one.name for one in fields(ReplicaPart)}
    assert {"api_key_env", "api_key_file"} <= names
    assert not names & {"api_key", "token", "password"}
