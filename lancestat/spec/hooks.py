"""What a project calls when runs start and end: functions of Python, and webhooks."""

from __future__ import annotations

import base64
import binascii
from dataclasses import field, replace
from typing import ClassVar

from lancestat.errors import Location, SpecError
from lancestat.formats import StringEnum
from lancestat.spec.declaration import (
    FILLED,
    PUBLIC,
    Listed,
    Nested,
    Resource,
    Text,
    key,
    resource,
    words,
)

ENCODED = "whsec_"
"""What the secret of a webhook begins with where the rest is the key in Base64."""


class When(StringEnum):
    """The ends of runs after which a hook is called."""

    SUCCESS = "success"
    FAILURE = "failure"
    ALWAYS = "always"


@resource
class Hook:
    """A function or a webhook. `webhook` and `secret` are secret: `repr` omits them."""

    call: str | None = key(
        PUBLIC,
        "A function of one argument, an event of `lancestat.events`: the name of an entry point "
        "of the group lancestat.hooks, or module:function of an installed module.",
        title="the name of an entry point, or module:function",
        default=None,
    )
    webhook: str | None = key(
        Text(
            title="an http:// or https:// URL",
            keywords={"pattern": r"^https?://[^\s/]\S*$(?!\n)"},
            is_secret=True,
        ),
        "A URL that gets a POST with JSON. It is never shown.",
        default=None,
        repr=False,
    )
    secret: str | None = key(
        replace(FILLED, is_secret=True),
        "The key that signs what the webhook gets. Take it from {{ env_var('X') }}.",
        default=None,
        repr=False,
    )
    when: When = key(
        words(When, "'success', 'failure' or 'always'"),
        "After which runs an `on_run_end` hook is called. One that was interrupted is a "
        "failure, and so is one with findings of severity error.",
        default=When.ALWAYS,
    )
    location: Location | None = field(default=None, compare=False)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'call' or 'webhook'",
        "A function or a webhook. The environment variables in hooks need only be set for runs.",
        noun="hook",
        definition="hook",
        one_of=("call", "webhook"),
        needs={"secret": ("webhook",)},
    )

    def __str__(self) -> str:
        """Name the hook for people, without its URL."""
        return f"webhook at {self.location}" if self.call is None else f"hook '{self.call}'"


_HOOKS = Listed(title="a list of hooks", items=Nested(resource=Hook))


@resource
class Hooks:
    """The hooks of a project. With `errors` in their templates they cannot be called.

    `written` is what the YAML has of them, with its templates.
    """

    on_run_start: tuple[Hook, ...] = key(
        _HOOKS, "Called when a run starts, before its first node.", default=()
    )
    on_run_end: tuple[Hook, ...] = key(
        _HOOKS, "Called when a run has ended, after it is recorded.", default=()
    )
    errors: tuple[SpecError, ...] = field(default=(), compare=False)
    written: object = field(default=None, compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.on_run_start or self.on_run_end or self.errors)

    declares: ClassVar[Resource] = Resource(
        "a mapping with 'on_run_start' and 'on_run_end'", noun="hooks"
    )


NO_HOOKS = Hooks()


def secret_objection(secret: str) -> str | None:
    """Return why a webhook cannot be signed with a secret, None if it can."""
    if not secret.startswith(ENCODED):
        return None
    try:
        base64.b64decode(secret.removeprefix(ENCODED), validate=True)
    except binascii.Error:
        return f"'secret' begins with '{ENCODED}', and the rest is not Base64"
    return None
