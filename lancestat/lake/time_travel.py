"""Which version of a dataset is meant: by its number, by a tag, or the latest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lancestat.errors import LakeError, UsageError, did_you_mean
from lancestat.lake.open import observe_dataset, readable

if TYPE_CHECKING:
    import lance

TWO_MOMENTS = "LS410"
BAD_VERSION = "LS411"
UNKNOWN_TAG = "LS208"

_LARGEST_VERSION = 2**63 - 1
_TAGS_SHOWN = 10


def pinned_version(
    uri: str,
    version: int | None,
    tag: str | None,
    storage_options: Mapping[str, str] | None = None,
) -> int | None:
    """The version that a number or a tag means, None for the latest.

    A dataset is opened only to look a tag up; whether a numbered version is there, opening it says.

    Args:
        uri: A path or an object-store URI.
        version: A manifest version.
        tag: A tag of the dataset.
        storage_options: For opening the dataset.

    Raises:
        UsageError: both were given (LS410), or the version cannot be one (LS411).
        LakeError: no such tag (LS208), or the dataset cannot be opened.
    """
    if version is not None and tag is not None:
        raise UsageError(
            TWO_MOMENTS,
            f"both version {version} and tag '{tag}' are given for {uri}",
            hint="a table is read at one version: leave one of them out",
        )
    if tag is not None:
        return _tagged(uri, tag, storage_options)
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int):
        raise _not_a_version(str(version))
    if not 1 <= version <= _LARGEST_VERSION:
        raise _not_a_version(str(version))
    return version


def parse_version(text: str) -> int:
    """The version that an option's text means.

    Raises:
        UsageError: It is not a whole number from 1 on (LS411).
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(_LARGEST_VERSION))):
        raise _not_a_version(text)
    number = int(digits)
    if not 1 <= number <= _LARGEST_VERSION:
        raise _not_a_version(text)
    return number


def _not_a_version(found: str) -> UsageError:
    return UsageError(
        BAD_VERSION,
        f"'{found}' is no version of a dataset",
        hint="versions are whole numbers from 1 on; a tag is given as tag",
    )


def _tagged(uri: str, tag: str, storage_options: Mapping[str, str] | None) -> int:
    dataset = observe_dataset(uri, storage_options=storage_options)
    with readable(uri, storage_options=storage_options):
        tags: Mapping[str, lance.Tag] = dataset.tags.list()
    if tag not in tags:
        raise LakeError(UNKNOWN_TAG, f"{uri} has no tag '{tag}'", hint=_known(tag, sorted(tags)))
    branch = tags[tag]["branch"]
    if branch is not None:
        raise LakeError(
            UNKNOWN_TAG,
            f"tag '{tag}' of {uri} is on branch '{branch}', not on the main line of versions",
            hint="read the branch by a URI of its own",
        )
    return int(tags[tag]["version"])


def _known(tag: str, tags: list[str]) -> str:
    if not tags:
        return "the dataset has no tags"
    shown = ", ".join(tags[:_TAGS_SHOWN])
    more = f" and {len(tags) - _TAGS_SHOWN} more" if len(tags) > _TAGS_SHOWN else ""
    near = did_you_mean(tag, tags)
    return f"{near + ' ' if near else ''}tags: {shown}{more}"
