"""A project whose every templated scalar comes from the environment, with values to look for.

No value occurs anywhere but in the environment and, if at all, in what lancestat shows.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

ORDINARY = {
    "C_STATE": "qzstate71",
    "C_SCRATCH": "qzscratch72",
    "C_MASTER": "local[3]",
    "C_CONF": "qzconf74",
    "C_SPECS": "qzspecs75",
    "C_LAKE": "qzlake76",
    "C_DESCRIPTION": "qzdescription77",
    "C_TAG": "qztag78",
    "C_OWNER": "qzowner79",
    "C_COLUMN": "qzcolumn80",
    "C_SQL": "qzsql81",
    "C_VECTOR": "qzvector82",
    "C_SELECT": "qzselect83",
    "C_OUTPUT": "qzoutput84",
    "C_UPPER": "qzupper85",
    "C_LOOP": "qzloop86",
    "C_NESTED": "qznested87",
    "C_ABOUT": "qzabout88",
    "C_REGION": "qzregion89",
}
SECRET = {
    "C_DB_PASSWORD": "qzpassword90",
    "C_API_KEY": "qzkey91/with+signs",
    "C_TOKEN": "qztoken92",
    "C_URI_SECRET": "qzurisecret93",
    "C_UNUSED_CREDENTIAL": "qzunused94credential",
}
ENVIRONMENT = {**ORDINARY, **SECRET}

PROJECT = """\
name: shop
default_target: dev
spec_paths: ["{{ env_var('C_SPECS') }}"]
vars:
  lake: "{{ env_var('C_LAKE') }}"
  deep: {down: ["{{ env_var('C_NESTED') }}"]}
  password: "{{ env_var('C_DB_PASSWORD') }}"
targets:
  dev:
    state: "{{ env_var('C_STATE') }}/state"
    scratch: "{{ env_var('C_SCRATCH') }}"
    spark:
      master: "{{ env_var('C_MASTER') }}"
      min_bytes: 0
      conf:
        spark.app.note: "{{ env_var('C_CONF') }}"
        spark.hadoop.token: "{{ env_var('C_TOKEN') }}"
    storage_options:
      aws_secret_access_key: "{{ env_var('C_API_KEY') }}"
      aws_region: "{{ env_var('C_REGION') }}"
"""
SPECS = """\
policies:
  - {name: lazy, description: "{{ env_var('C_ABOUT') }}", allow.stale: true}
column_sets:
  - {name: keys, include: ["{{ env_var('C_COLUMN') }}*", id]}
tables:
  - name: orders
    uri: "{{ var('lake') }}/orders.lance"
    description: "{{ env_var('C_DESCRIPTION') }} and {{ var('password') }}"
    tags: ["{{ env_var('C_TAG') }}"]
    owner: "{{ env_var('C_OWNER') }}"
    columns: {set: keys}
    policy: lazy
  - name: gone
    uri: "{{ var('lake') }}/{{ env_var('C_UPPER') | upper }}/{{ var('deep').down[0] }}/gone.lance"
    description: "{% for c in env_var('C_LOOP') %}{{ c }}{% endfor %}"
  - name: spelled
    uri: "{{ env_var('C_LAKE') }}/{% if true %}{{ env_var('C_URI_SECRET') ~ '_x' }}{% endif %}"
    owner: "{{ env_var('C_DB_PASSWORD') | upper }}"
knn_joins:
  - name: near
    left:
      table: orders
      vector: "{{ env_var('C_VECTOR') }}"
      select: ["{{ env_var('C_SELECT') }}"]
    right:
      format: jdbc
      path: "jdbc:{{ env_var('C_LAKE') }}"
      options: {password: "{{ env_var('C_DB_PASSWORD') }}"}
      vector: v
    k: 3
    output: {lance: "{{ env_var('C_OUTPUT') }}/near.lance"}
    description: "{{ env_var('C_DESCRIPTION') }}"
  - name: asked
    left: {table: orders, vector: v}
    right: {sql: "select '{{ env_var('C_SQL') }}' as v from {{ ref('orders') }}", vector: v}
    k: 3
    output: {lance: "{{ env_var('C_OUTPUT') }}/asked.lance"}
duplicates:
  - name: same
    lance: "{{ env_var('C_LAKE') }}/{{ env_var('C_URI_SECRET') }}/orders.lance"
    vector: "{{ env_var('C_VECTOR') }}"
    where: "id > 0 and o_note <> '{{ env_var('C_DB_PASSWORD') }}'"
    on: ["{{ env_var('C_COLUMN') }}"]
    max_distance: 0.1
    keep: {order_by: ["{{ env_var('C_SELECT') }} desc"]}
    select: ["{{ env_var('C_SELECT') }}"]
    output: {lance: "{{ env_var('C_OUTPUT') }}/same.lance"}
    pairs: {lance: "{{ env_var('C_OUTPUT') }}/{{ env_var('C_TOKEN') }}/pairs.lance"}
    description: "{{ env_var('C_DESCRIPTION') }}"
    owner: "{{ env_var('C_OWNER') }}"
  - name: alike
    table: orders
    vector: v
    max_distance: 0.1
    output: {lance: "{{ env_var('C_OUTPUT') }}/{{ env_var('C_URI_SECRET') }}/alike.lance"}
"""


def write(folder: Path, project: str = PROJECT, specs: str = SPECS) -> None:
    """Write the project into a folder."""
    (folder / "lancestat_project.yml").write_text(project)
    below = folder / ORDINARY["C_SPECS"]
    below.mkdir(exist_ok=True)
    (below / "shop.yml").write_text(specs)


def seen(text: str, values: Mapping[str, str]) -> list[str]:
    """Return the variables whose values occur in a text, in any encoding or case."""
    lowered = text.lower()
    spaceless = re.sub(r"\s+", "", lowered)
    return [
        name
        for name, value in values.items()
        if any(spelling in lowered or spelling in spaceless for spelling in _spellings(value))
    ]


def _spellings(value: str) -> Iterable[str]:
    yield value.lower()
    yield quote(value, safe="").lower()
    yield base64.b64encode(value.encode()).decode().rstrip("=").lower()
    # The beginning alone is enough of a hint.
    if len(value) > 8:
        yield value[:9].lower()
