"""Templates of a whole document rendered in place."""

from __future__ import annotations

from dataclasses import dataclass, field

from lancestat.errors import SpecError
from lancestat.redact import Known, Origin
from lancestat.spec.document import Document, KeyPath
from lancestat.spec.template import Scope, is_template, render


@dataclass(slots=True)
class Rendering:
    """What rendering gave besides values: inputs named by `ref`, origins, and failures by path.

    `origins` are of values that came from the environment, `known` are the parts of those values.
    """

    refs: dict[KeyPath, tuple[str, ...]] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    known: dict[Known, None] = field(default_factory=dict, repr=False)
    failures: dict[KeyPath, SpecError] = field(default_factory=dict)

    def render(self, document: Document, value: object, path: KeyPath, scope: Scope) -> object:
        """`value`, found at `path` of `document`, with every template in it rendered.

        A template that fails is left as it is.
        """
        if isinstance(value, str):
            return self._scalar(document, value, path, scope) if is_template(value) else value
        if isinstance(value, dict):
            return {
                key: self.render(document, item, (*path, key), scope) for key, item in value.items()
            }
        if isinstance(value, list):
            return [
                self.render(document, item, (*path, index), scope)
                for index, item in enumerate(value)
            ]
        return value

    def _scalar(self, document: Document, text: str, path: KeyPath, scope: Scope) -> object:
        allow_ref = path[:1] == ("knn_joins",) and path[-1:] == ("sql",)
        try:
            rendered = render(text, scope, document.at(path), allow_ref=allow_ref)
        except SpecError as error:
            self.failures[path] = error
            return text
        if rendered.refs:
            self.refs[path] = rendered.refs
        if rendered.origin is not None:
            self.origins[path] = rendered.origin
            self.known |= dict.fromkeys(rendered.known)
        return rendered.value
