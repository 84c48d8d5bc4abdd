"""A whole gateway in this process, over fake replicas that answer as an engine would."""

import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx

from tests.support.gateway_wire import FakeReplica, json_answer
from warmturn.gateway.config import AdminPart, Config, HealthPart, ListenPart, ReplicaPart
from warmturn.gateway.server import Gateway

QUICK = HealthPart(interval_s=0.05, timeout_s=1.0, open_s=0.05, metrics_interval_s=0.05)


class EngineLike(FakeReplica):
    """Counts prompt tokens as bytes and reports what it saw before under the same salt."""

    def __init__(self, model="m", *, key=None):
        super().__init__(self._answered)
        self.model, self.key, self.is_well = model, key, True
        self.seen_prompts = set()
        self.metrics_text = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'

    @property
    def calls(self):
        return [seen for seen in self.seen if seen.method == "POST"]

    def _answered(self, seen):
        if self.key is not None and seen.headers.get("authorization") != f"Bearer {self.key}":
            return [json_answer({"error": {"message": "no key"}}, status="401 Unauthorized")]
        if seen.target == "/health":
            return [json_answer({}, status="200 OK" if self.is_well else "503 Unwell")]
        if seen.target == "/v1/models":
            return [json_answer({"data": [{"id": self.model}]})]
        if seen.target == "/metrics":
            text = self.metrics_text.encode()
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n"
            return [head % len(text) + text]
        return [json_answer(self._completion(seen))]

    def _completion(self, seen):
        body = seen.json
        prompt = body.get("cache_salt"), json.dumps(body.get("messages"))
        cached = 32 if prompt in self.seen_prompts else 0
        self.seen_prompts.add(prompt)
        usage = {
            "prompt_tokens": 40,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}}
        return {"id": "chat-1", "model": self.model, "choices": [choice], "usage": usage}


class Running:
    """A running gateway with clients of both its ports."""

    def __init__(self, gateway, replicas):
        self.gateway, self.replicas = gateway, replicas
        self.client = httpx.AsyncClient(base_url=gateway.facts["url"])
        self.admin = httpx.AsyncClient(base_url=gateway.facts["admin_url"])

    async def chat(self, *texts, model="m", headers=None, **fields):
        messages = [
            {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)
        ]
        body = {"model": model, "messages": messages, **fields}
        return await self.client.post("/v1/chat/completions", json=body, headers=headers or {})

    async def get(self, path, **options):
        return (await self.admin.get(path, **options)).json()

    async def metric(self, name, **labels):
        return self.gateway.metrics.registry.get_sample_value(f"warmturn_{name}", labels)

    async def states(self):
        return {r["name"]: r["state"] for r in (await self.get("/warmturn/replicas"))["replicas"]}


def local(**parts) -> Config:
    """A configuration on free loopback ports."""
    base = {"listen": ListenPart(port=0), "admin": AdminPart(port=0), "health": QUICK}
    return Config(**base | parts)


@asynccontextmanager
async def running(num=2, *, config=None, engines=None, load_config=None, **parts):
    """Run a gateway over `num` engine-like replicas named r0, r1 …"""
    async with AsyncExitStack() as stack:
        replicas = engines or [EngineLike() for _ in range(num)]
        for replica in replicas:
            await replica.start()
            stack.push_async_callback(replica.stop)
        config = config or local(**parts)
        members = tuple(
            ReplicaPart(url=f"http://127.0.0.1:{replica.port}", name=f"r{number}")
            for number, replica in enumerate(replicas)
        )
        config = replace(config, replicas=(*members, *config.replicas))
        gateway = Gateway(config, load_config=load_config)
        await stack.enter_async_context(gateway)
        one = Running(gateway, replicas)
        stack.push_async_callback(one.client.aclose)
        stack.push_async_callback(one.admin.aclose)
        yield one
