"""Whatever a client sends, it gets an answer that is not a 500, and the server goes on."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.client import call
from tests.support.soak import examples
from tests.support.tiny_server import HELLO, TinyServer, says
from warmturn.formats.generation import HARMLESS, REFUSED, Generation
from warmturn.formats.prompt import ChatPrompt

CHAT = "/v1/chat/completions"
PATHS = (CHAT, "/v1/completions", "/tokenize", "/detokenize")
FIELDS = sorted(
    {*Generation.__dataclass_fields__, *ChatPrompt.__dataclass_fields__, *REFUSED, *HARMLESS}
    | {"prompt", "tokens", "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs"}
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["user", "assistant", "auto", "refuse me", "\0", "<end>", "ab"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*FIELDS, "role", "content", "type", "text"]), inner)
    ),
    max_leaves=8,
)
part = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url"])}, optional={"text": values}
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "x"])},
    optional={"content": st.text(max_size=5) | st.lists(part, max_size=2) | values, "name": values},
)
plausible = st.fixed_dictionaries(
    {"messages": st.lists(message, max_size=3), "prompt": st.text(max_size=5) | st.lists(values)},
    optional={
        "temperature": st.floats(0, 2),
        "max_tokens": st.integers(0, 50),
        "stop": st.text(max_size=2) | st.lists(st.text(max_size=2), max_size=3),
        "logprobs": st.booleans() | st.integers(-1, 21),
        "stream": st.booleans(),
        "cache_salt": st.text(max_size=3),
        "min_tokens": st.integers(-1, 5),
        "chat_template_kwargs": st.dictionaries(st.text(max_size=5), values, max_size=2),
    },
)
bodies = plausible | st.dictionaries(st.sampled_from(FIELDS), values, max_size=5)

server = TinyServer(says("a reply, é!"), max_model_len=200)
often = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


def goes_on() -> bool:
    return call(server.app, "POST", CHAT, json=HELLO).is_success


@often
@given(path=st.sampled_from(PATHS), body=bodies)
def test_no_json_body_makes_the_server_fail(path, body):
    response = call(server.app, "POST", path, json=body)
    assert response.status_code in (200, 400, 404), response.text
    if response.status_code != 200:
        assert response.json()["error"]["message"]
    assert goes_on()


@often
@given(
    path=st.sampled_from(PATHS),
    content=st.binary(max_size=60),
    mangled=bodies,
    cut=st.integers(0, 99),
)
def test_no_other_bytes_do_either(path, content, mangled, cut):
    headers = {"content-type": "application/json"}
    text = repr(mangled).replace("'", '"').encode("utf-8", errors="surrogatepass")
    for sent in (content, text[: cut * len(text) // 100]):
        response = call(server.app, "POST", path, content=sent, headers=headers)
        assert response.status_code in (200, 400, 404), response.text
    assert goes_on()
