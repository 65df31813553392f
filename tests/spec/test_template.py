from __future__ import annotations

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancestat.errors import Location, SpecError
from lancestat.redact import Origin, Variable
from lancestat.spec.names import render
from lancestat.spec.sandbox import evaluate
from lancestat.spec.template import BadTemplateError, TemplateNames, TemplateScope, is_template

PLACE = Location("f.yml", 3, 7)
SCOPE = TemplateScope(
    environment={"REGION": "eu", "N": "007"},
    vars={
        "warehouse": "./wh",
        "k": 10,
        "flag": True,
        "share": 0.5,
        "columns": ["a", "b"],
        "nothing": None,
        "map": {"x": 1},
    },
    var_origins={"share": Origin((Variable("SHARE"),), "{{ env_var('SHARE') }}")},
    target="dev",
)


def value(text: str, *, allow_ref: bool = False) -> object:
    return render(text, SCOPE, PLACE, allow_ref=allow_ref).value


def fault(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        render(text, SCOPE, PLACE)
    assert caught.value.location == PLACE
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ var('warehouse') }}/orders.lance", "./wh/orders.lance"),
        ("{{ var('k') }}", 10),
        ("{{var('k')}}\n", 10),
        (" {{ var('k') }}", " 10"),
        ("{{ var('flag') }}", True),
        ("{{ var('share') }}", 0.5),
        ("{{ var('missing', 7) }}", 7),
        ("{{ var('missing', 'x') }}", "x"),
        ("{{ env_var('REGION') }}", "eu"),
        ("{{ env_var('N') }}", "007"),
        ("{{ env_var('N') | int }}", 7),
        ("{{ env_var('MISSING', 'us') }}", "us"),
        ("{{ target.name }}", "dev"),
        ("{{ target.name | upper }}", "DEV"),
        ("{{ 2 * 3 }}", 6),
        ("{{ true }}", True),
        ("{{ 'a' ~ 1 ~ var('k') }}", "a110"),
        ("{{ var('k') + 1 }}", 11),
        ("{% if target.name == 'dev' %}limit {{ var('k') }}{% endif %}", "limit 10"),
        ("{% for c in var('columns') %}{{ c }}{{ ', ' if not loop.last }}{% endfor %}", "a, b"),
        ("{% set x = var('k') %}{{ x }}", "10"),
        ("{{ var('columns') | join('-') }}", "a-b"),
        ("{{ 'a.b'.split('.')[1] }}", "b"),
        ("{{ var('map').x }}", 1),
        ("{{ var('warehouse') | replace('.', '/') }}", "//wh"),
        ("{# nothing #}x", "x"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{{ 1 if false }}", ""),
    ],
)
def test_a_lone_expression_keeps_its_type_and_all_else_is_text(text: str, expected: object) -> None:
    rendered = value(text)
    assert rendered == expected
    assert type(rendered) is type(expected)


def test_ref_quotes_a_name_for_sql_and_remembers_it_once() -> None:
    text = "select * from {{ ref('a') }} join {{ ref('b-c') }} join {{ ref('a') }}"
    rendered = render(text, SCOPE, PLACE, allow_ref=True)
    assert rendered.value == "select * from `a` join `b-c` join `a`"
    assert tuple(rendered.refs) == ("a", "b-c")


def test_refs_are_found_in_any_expression() -> None:
    text = "{% for t in ['a', 'b'] %}{{ ref(t) }}{% endfor %}"
    assert tuple(render(text, SCOPE, PLACE, allow_ref=True).refs) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("{{ env_var('REGION') }}", True),
        ("{{ env_var('REGION') | upper }}", True),
        ("{{ var('share') }}", True),
        ("{{ var('k') }}", False),
    ],
)
def test_values_derived_from_the_environment_are_secret(text: str, secret: bool) -> None:
    rendered = render(text, SCOPE, PLACE)
    assert (rendered.origin() is not None) is secret
    assert str(rendered.value) not in repr(rendered)
    assert "eu" not in repr(SCOPE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ var('warehuse') }}", "unknown variable 'warehuse'; known variables: columns, flag"),
        ("{{ var('warehuse') }}", "hint: did you mean 'warehouse'?"),
        ("{{ var('zzz') }}", "hint: declare it under 'vars' in lancestat_project.yml"),
        ("{{ warehouse }}", "hint: did you mean var('warehouse')?"),
        ("{{ zzz }}", "hint: a template may use var('name'), env_var('NAME'), target.name"),
        ("{{ vra('k') }}", "hint: did you mean 'var'?"),
        ("{{ zzz ~ 'a' }}", "'zzz' is undefined"),
        ("x{{ zzz }}", "'zzz' is undefined"),
        ("{{ env_var('MISSING') }}", "environment variable 'MISSING' is not set"),
        ("{{ ref('a') }}", "ref() can be used only in 'sql'"),
        ("{{ var(k) }}", "'k' is undefined"),
        ("{{ var(1) }}", "var() takes a name in quotes"),
        ("{{ var('columns') }}", "an expression gives a list"),
        ("{{ var('map') }}", "an expression gives a mapping"),
        ("x{{ var('map') }}", "an expression gives a mapping"),
        ("{{ var('nothing') }}", "an expression gives nothing"),
        ("{{ var }}", "an expression gives something else"),
        ("{{", "unexpected 'end of template'"),
        ("{% if %}", "Expected an expression"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'a' | no_such }}", "No filter named 'no_such'"),
        ("{{ {'a': 1}['b'] }}", "has no attribute 'b'"),
        ("{{ target.nme }}", "target has no 'nme', only 'name'"),
        ("{{ var() }}", "missing 1 required positional argument"),
    ],
)
def test_errors_have_a_location_and_list_existing_names(text: str, expected: str) -> None:
    assert expected in fault(text)
    assert fault(text).startswith("LS108 f.yml:3:7  template: ")


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ var.__globals__ }}",
        "{{ var.__self__.scope }}",
        "{{ target.names }}",
        "{{ target.names.scope.environment }}",
        "{{ ()|attr('__class__') }}",
        "{{ 'a'['__class__'] }}",
        "{{ range.__class__ }}",
        "{{ self.__init__ }}",
        "{{ cycler }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ 'a'.format_map({}) }}",
        "{{ var('columns').append(1) }}",
        "{{ var('map').update({}) }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{% block x %}{% endblock %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% call var('k') %}{% endcall %}",
        "{% filter upper %}x{% endfilter %}",
        "{% set x %}y{% endset %}{{ x }}",
        "{% with a = 1 %}{{ a }}{% endwith %}",
        "{% autoescape true %}x{% endautoescape %}",
        "{% for x in [[]] recursive %}{{ loop(x) }}{% endfor %}",
        "{{ context }}",
        # Runaway templates are stopped.
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ [1] * 10**9 }}",
        "{{ 2 ** (2 ** 20) }}",
        "{{ 2.0 ** 10000 }}",
        "{{ 10**60 * 10**60 * 10**60 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'a' | center(10**9) }}",
        "{{ 'a' | indent(10**9) }}",
        "{{ range(10**9) | list }}",
        "{{ range(10**9) | join }}",
        "{{ range(9999) | join('x' * 99999) }}",
        "{{ ('a' * 99999) | replace('a', 'b' * 99999) }}",
        "{% for i in range(5000) %}{% for j in range(5000) %}{% endfor %}{% endfor %}",
        "{% for i in range(9999) %}{{ 'x' * 99 }}{% endfor %}",
        "{% set a = 'x' * 9 %}" + "{% set a = a ~ a %}" * 50 + "{{ a }}",
        "{% set a = 'x' * 9 %}" + "{% set a = a + a %}" * 50 + "{{ a }}",
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{{ " + "-" * 20000 + "1 }}",
        "{{ '" + "x" * 200_000 + "' }}",
        "{{ 1e308 * 10 }}",
    ],
)
def test_templates_outside_the_small_language_or_its_bounds_fail(text: str) -> None:
    assert "template: " in fault(text)


def test_variables_cannot_refer_to_variables() -> None:
    scope = TemplateScope({}, None, target="dev")
    for text in ("{{ var('x') }}", "{{ var('x') | upper }}"):
        with pytest.raises(SpecError, match=r"var\(\) cannot be used here"):
            render(text, scope, PLACE)


def test_the_target_is_unknown_while_it_is_being_chosen() -> None:
    for text in ("{{ target.name }}", "{{ target.name | upper }}"):
        with pytest.raises(SpecError, match=r"target\.name cannot be used here"):
            render(text, TemplateScope({}), PLACE)


PIECES = st.sampled_from(
    ["a", " ", "\n", "'", "}}", "{", "{{ var('k') }}", '{{var("warehouse")}}', "{{", "{%", "{#",
     "{{- var('flag') }}", "{{ var('share') -}}", "{{ env_var('REGION') | upper }}", "{{ nope }}",
     "{{ ref('a`b') }}", "{{ -1 }}", "{{-1}}", "{{ target.name ~ '}}' }}", "{{ var('x') }}",
     "{{ 'a' if var('flag') else 'b' }}", "{# {{ nope }} #}", "{#- c -#}", "{{ }}", "{{ 1 2 }}",
     "{% raw %}{{ x }}{% endraw %}", "{% if var('flag') %}y{% endif %}", "{% set x = 1 %}{{ x }}"]
)  # fmt: skip
PLAIN_JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined)


@given(st.lists(PIECES, max_size=5).map("".join))
def test_any_template_renders_as_with_plain_jinja(text: str) -> None:
    names, plain = TemplateNames(SCOPE, True, text), TemplateNames(SCOPE, True, text)
    functions = {"var": plain.var, "env_var": plain.env_var, "ref": plain.ref}
    try:
        expected = PLAIN_JINJA.from_string(text).render(functions, target={"name": "dev"})
    except (jinja2.TemplateError, BadTemplateError):
        with pytest.raises(BadTemplateError):
            evaluate(text, names)
        return
    assert str(evaluate(text, names)) == expected
    assert (names.refs, names.used) == (plain.refs, plain.used)


@given(st.text(alphabet="{}%#'\"()|~*+-.[]: abkvrx019\n", max_size=40))
def test_any_text_renders_or_fails_with_its_location(text: str) -> None:
    try:
        rendered = render(text, SCOPE, PLACE)
    except SpecError as error:
        assert error.location == PLACE
        return
    assert is_template(text) or rendered.value == text.removesuffix("\n")


def test_an_expression_is_evaluated_anew_in_every_scope() -> None:
    for name in ("a", "b"):
        scope = TemplateScope({}, {"w": name}, target=name)
        assert render("{{ var('w') }}/{{ target.name }}", scope, PLACE).value == f"{name}/{name}"
