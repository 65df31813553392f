"""LS1xx: errors in the YAML."""

from __future__ import annotations

from collections.abc import Sequence

from lancestat.errors.base import LancestatError, SpecError


class InvalidProject(LancestatError, code="LS100"):
    """The project has errors. Each has its own code, and `errors` lists them in file order.

    `excerpts` has the lines that they point at, None where those may not be shown.
    """

    remedy = "Fix the errors that are listed with it."

    def __init__(
        self, errors: Sequence[LancestatError], excerpts: Sequence[str | None] = ()
    ) -> None:
        self.errors = tuple(errors)
        self.excerpts = tuple(excerpts) or (None,) * len(self.errors)
        count = len(self.errors)
        noun = "error" if count == 1 else "errors"
        super().__init__(f"the project has {count} {noun}")

    def __str__(self) -> str:
        return "\n".join(map(LancestatError.shown, self.errors, self.excerpts))

    def __reduce__(self) -> tuple[object, ...]:
        return InvalidProject, (self.errors, self.excerpts)


class UnreadableFile(SpecError, code="LS101"):
    """A file or folder of the project cannot be read.

    It is missing, leads out of the project, is empty, too large, not UTF-8 or not a regular file.
    """

    remedy = (
        "Check that `lancestat_project.yml` and the folders in `spec_paths` exist and are "
        "readable, that they contain regular UTF-8 files, and that no link leads out of the "
        "project."
    )


class InvalidSyntax(SpecError, code="LS102"):
    """The text is not YAML, or uses a feature of YAML that lancestat does not accept."""

    remedy = (
        "Correct the YAML at the position named: indentation, quotes, tags, merge keys. A file "
        "holds one document."
    )


class UnknownKey(SpecError, code="LS103"):
    """A mapping has an unknown key."""

    remedy = "Correct the spelling, or remove the key. docs/reference/yaml.md lists every key."


class DuplicateKey(SpecError, code="LS104"):
    """A mapping has the same key twice."""

    remedy = "Remove one of the two."


class WrongType(SpecError, code="LS105"):
    """A value has a different type than its key takes, such as text instead of a list."""

    remedy = "Write a value of the type named in the message; see docs/reference/yaml.md."


class MissingKey(SpecError, code="LS106"):
    """A required key is missing."""

    remedy = "Add the key named in the message; see docs/reference/yaml.md."


class WrongValue(SpecError, code="LS107"):
    """A value has the right type, but its key does not accept it."""

    remedy = "Write one of the values named in the message; see docs/reference/yaml.md."


class InvalidTemplate(SpecError, code="LS108"):
    """A template cannot be rendered.

    It names an unknown variable or an environment variable that is not set, uses an unsupported
    part of Jinja, or results in something other than text, a number, true or false.
    """

    remedy = (
        "Declare the variable under `vars` or pass it with `--vars`, set the environment variable "
        "or give it a default, and use only `var`, `env_var`, `ref` and `target.name`."
    )


class DuplicateName(SpecError, code="LS109"):
    """Two resources have the same name."""

    remedy = "Rename one of them; tables and KNN joins share one namespace."


class UnknownReference(SpecError, code="LS110"):
    """The YAML refers to something that is not declared, such as a table, policy or target."""

    remedy = "Correct the name, or declare what it refers to."


class CyclicReferences(SpecError, code="LS111"):
    """Nodes read each other's results in a cycle."""

    remedy = "Let one of the nodes in the message read something else."


class OverlappingOutputs(SpecError, code="LS112"):
    """Two nodes write to the same dataset, or a join's output overlaps with another dataset.

    The other dataset belongs to another node, or the join itself reads it.
    """

    remedy = (
        "Give each `output` its own folder, neither inside nor around another dataset. Declare a "
        "table only once, or give one of the two `publish: none`."
    )


class TooComplex(SpecError, code="LS113"):
    """The YAML is nested too deeply, or its aliases expand to too many values."""

    remedy = "Use less nesting and fewer aliases; an anchor cannot contain itself."


class UnknownColumn(SpecError, code="LS114"):
    """The `columns` of a table name a column that its dataset does not have."""

    remedy = "Correct the name in `columns`, or remove it; the hint has the most similar name."


class UnsupportedColumn(SpecError, code="LS115"):
    """A declared column cannot have statistics.

    Its type is not supported, or its name is empty or contains a dot.
    """

    remedy = (
        "Remove the column from `columns`, or rename it. docs/explanation/statistics.md lists the "
        "types that have statistics."
    )
