"""What separates equal tokens from one another: model, adapter, images and salt, each typed.

Two forms of a block's extra keys exist, and both are vLLM's. The *tagged* form is hashed:
`("lora", name, path)`, `("mm", content_hash, offset)`, `("cache_salt", salt)`. The *untagged*
form is what KV events publish: `name`, `(content_hash, offset)`, `salt`.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from warmturn.errors import InvalidRequest

__all__ = [
    "AdapterKey",
    "BlockExtras",
    "CacheScope",
    "EventKeys",
    "ExtraKeys",
    "ImageKey",
    "block_extras",
    "event_keys_of",
    "extra_keys_of",
    "validate_salt",
]

ExtraKeys: TypeAlias = tuple[tuple[str | int, ...], ...]
"""Tagged keys of one block, in the order adapter, images, salt; never empty."""

EventKeys: TypeAlias = tuple[str | tuple[str, int], ...]
"""The same keys without their tags, as KV events carry them."""

# What vLLM 0.32 accepts as `cache_salt`; the characters are separators in stores behind it.
MAX_SALT_CHARS = 128
REFUSED_SALT_CHARS = "@/\\"


@dataclass(frozen=True, slots=True)
class AdapterKey:
    """A LoRA adapter. The path is part of it: a name can be pointed at another adapter."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class ImageKey:
    """An image, or any other non-text input, and the placeholder tokens it stands at."""

    content_hash: str
    offset: int
    """Position of its first placeholder token in the sequence."""
    length: int
    """Number of placeholder tokens, at least 1."""

    def __post_init__(self) -> None:
        if self.offset < 0 or self.length < 1:
            raise InvalidRequest(
                f"image {self.content_hash!r} is placed at offset {self.offset} with length "
                f"{self.length}; offset must be at least 0 and length at least 1",
                param="images",
            )

    @property
    def end(self) -> int:
        """Position after its last placeholder token."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class CacheScope:
    """Whose blocks these are. Sequences share blocks only when all of it is equal.

    The salt is taken as it is; `validate_salt` says what a client may send. Raises
    `InvalidRequest` for an empty salt, which engines would silently take for no salt, and for
    images that overlap or are not in order of their offset.
    """

    model: str
    adapter: AdapterKey | None = None
    salt: str | None = None
    images: tuple[ImageKey, ...] = ()

    def __post_init__(self) -> None:
        if self.salt == "":
            raise InvalidRequest(
                "cache_salt is empty, which would mean no isolation; "
                "send a non-empty string or leave it out",
                param="cache_salt",
            )
        for image, following in zip(self.images, self.images[1:], strict=False):
            if following.offset < image.end:
                raise InvalidRequest(
                    f"image {following.content_hash!r} starts at token {following.offset}, before "
                    f"token {image.end} where the image listed before it ends; "
                    "list images in order of position",
                    param="images",
                )


@dataclass(frozen=True, slots=True)
class BlockExtras:
    """Tagged extra keys of a run of blocks: one value for nearly all, and the exceptions."""

    common: ExtraKeys | None = None
    special: dict[int, ExtraKeys] = field(default_factory=dict)
    """By index within the run."""


def extra_keys_of(scope: CacheScope, block_index: int, block_size: int) -> ExtraKeys | None:
    """Return the tagged keys hashed with one block; None where it has none.

    Rule of vLLM 0.32: the adapter is in every block, an image in each block it covers with its
    offset relative to that block's first token (negative once it began earlier), the salt in
    block 0 only, because the chain carries it on. Any block size, in tokens.
    """
    start, end = block_index * block_size, (block_index + 1) * block_size
    keys = _adapter_keys(scope)
    keys += [
        ("mm", image.content_hash, image.offset - start)
        for image in scope.images
        if image.offset < end and image.end > start
    ]
    if scope.salt is not None and block_index == 0:
        keys.append(("cache_salt", scope.salt))
    return tuple(keys) or None


def _adapter_keys(scope: CacheScope) -> list[tuple[str | int, ...]]:
    if scope.adapter is None:
        return []
    return [("lora", scope.adapter.name, scope.adapter.path)]


def block_extras(
    scope: CacheScope, *, first_block: int, num_blocks: int, block_size: int
) -> BlockExtras:
    """Return the keys of blocks `[first_block, first_block + num_blocks)` of one sequence.

    Equal to `extra_keys_of` for each of them, at a cost that grows with the number of images
    and of blocks they cover instead of with the number of blocks.
    """
    common = tuple(_adapter_keys(scope)) or None
    if scope.salt is None and not scope.images:
        return BlockExtras(common)
    run = range(first_block, first_block + num_blocks)
    touched = {0} if scope.salt is not None else set()
    for image in scope.images:
        covered = range(image.offset // block_size, -(-image.end // block_size))
        touched.update(range(max(run.start, covered.start), min(run.stop, covered.stop)))
    special = {
        index - first_block: keys
        for index in touched
        if index in run and (keys := extra_keys_of(scope, index, block_size))
    }
    return BlockExtras(common, special)


def event_keys_of(keys: ExtraKeys | None) -> EventKeys | None:
    """Return `keys` without tags, the form KV events publish (an adapter by its name only)."""
    if keys is None:
        return None
    untagged: list[str | tuple[str, int]] = []
    for tag, value, *rest in keys:
        if tag == "mm":
            untagged.append((str(value), int(rest[0])))
        else:
            untagged.append(str(value))
    return tuple(untagged)


def validate_salt(value: object) -> str:
    r"""Return `value` if a client may send it as `cache_salt`; raise `InvalidRequest` if not.

    Accepted is what vLLM 0.32 accepts (1 to 128 characters, none of `@`, `/`, `\\` and NUL),
    less control characters and lone surrogates, which no log or UTF-8 body carries faithfully.
    The message never repeats the salt: it is a secret.
    """
    if not isinstance(value, str):
        raise _bad_salt(f"is a {type(value).__name__}, not a string")
    if not 1 <= len(value) <= MAX_SALT_CHARS:
        raise _bad_salt(f"has {len(value)} characters")
    for position, char in enumerate(value):
        if char in REFUSED_SALT_CHARS:
            raise _bad_salt(f"has {char!r} at position {position}")
        if _is_control(char):
            raise _bad_salt(f"has U+{ord(char):04X} at position {position}")
    return value


def _is_control(char: str) -> bool:
    code = ord(char)
    return code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000  # C0, DEL + C1, surrogates


def _bad_salt(what: str) -> InvalidRequest:
    return InvalidRequest(
        f"cache_salt {what}; send 1 to {MAX_SALT_CHARS} characters without control characters, "
        "'@', '/' and '\\', such as 64 hexadecimal digits",
        param="cache_salt",
    )
