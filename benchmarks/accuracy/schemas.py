"""What can be declared of the tables: groups of columns, keys, references."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

# Columns that depend on each other, that joins compare together or that queries group by.
GROUPS = {
    "customer": "c_mktsegment c_nationkey",
    "part": "p_brand p_container, p_mfgr p_brand, p_brand p_type p_size",
    "partsupp": "ps_partkey ps_suppkey",
    "orders": "o_orderstatus o_orderpriority",
    "lineitem": "l_partkey l_suppkey, l_returnflag l_linestatus, l_shipinstruct l_shipmode",
    "store_sales": "ss_item_sk ss_ticket_number, ss_customer_sk ss_item_sk ss_ticket_number",
    "store_returns": "sr_item_sk sr_ticket_number, sr_customer_sk sr_item_sk sr_ticket_number",
    "catalog_sales": "cs_item_sk cs_order_number, cs_bill_customer_sk cs_item_sk",
    "catalog_returns": "cr_item_sk cr_order_number",
    "web_sales": "ws_item_sk ws_order_number, ws_order_number ws_warehouse_sk",
    "web_returns": "wr_item_sk wr_order_number",
    "inventory": "inv_item_sk inv_warehouse_sk, inv_date_sk inv_warehouse_sk",
    "item": "i_category i_class, i_category i_class i_brand, i_brand_id i_brand",
    "date_dim": "d_year d_moy, d_year d_qoy, d_month_seq d_year, d_week_seq d_year",
    "customer_demographics": "cd_gender cd_marital_status cd_education_status",
    "household_demographics": "hd_dep_count hd_vehicle_count",
    "customer_address": "ca_state ca_county, ca_city ca_state",
    "users": "reputation up_votes, reputation views, reputation down_votes",
    "posts": "post_type_id favorite_count, post_type_id answer_count, score comment_count",
    "comments": "post_id user_id",
    "votes": "vote_type_id bounty_amount, post_id vote_type_id",
    "post_history": "post_id post_history_type_id, post_id user_id",
}
KEYS = {
    "region": "r_regionkey",
    "nation": "n_nationkey",
    "supplier": "s_suppkey",
    "part": "p_partkey",
    "partsupp": "ps_partkey ps_suppkey",
    "orders": "o_orderkey",
    "lineitem": "l_orderkey l_linenumber",
    "store_sales": "ss_item_sk ss_ticket_number",
    "store_returns": "sr_item_sk sr_ticket_number",
    "catalog_sales": "cs_item_sk cs_order_number",
    "catalog_returns": "cr_item_sk cr_order_number",
    "web_sales": "ws_item_sk ws_order_number",
    "web_returns": "wr_item_sk wr_order_number",
    "inventory": "inv_date_sk inv_item_sk inv_warehouse_sk",
}
# What columns whose names end like this refer to, where the table is there: first match wins.
REFERENCES = {
    "_date_sk": "date_dim.d_date_sk",
    "_time_sk": "time_dim.t_time_sk",
    "_item_sk": "item.i_item_sk",
    "_customer_sk": "customer.c_customer_sk",
    "_cdemo_sk": "customer_demographics.cd_demo_sk",
    "_hdemo_sk": "household_demographics.hd_demo_sk",
    "_addr_sk": "customer_address.ca_address_sk",
    "_store_sk": "store.s_store_sk",
    "_promo_sk": "promotion.p_promo_sk",
    "_warehouse_sk": "warehouse.w_warehouse_sk",
    "_ship_mode_sk": "ship_mode.sm_ship_mode_sk",
    "_web_site_sk": "web_site.web_site_sk",
    "_web_page_sk": "web_page.wp_web_page_sk",
    "_call_center_sk": "call_center.cc_call_center_sk",
    "_catalog_page_sk": "catalog_page.cp_catalog_page_sk",
    "_reason_sk": "reason.r_reason_sk",
    "_income_band_sk": "income_band.ib_income_band_sk",
    "n_regionkey": "region.r_regionkey",
    "_nationkey": "nation.n_nationkey",
    "_suppkey": "supplier.s_suppkey",
    "_partkey": "part.p_partkey",
    "o_custkey": "customer.c_custkey",
    "l_orderkey": "orders.o_orderkey",
    "post_id": "posts.id",
    "user_id": "users.id",
}
Declared = Literal["histogram", "groups", "keys", "references", "common_values"]
DECLARED: tuple[Declared, ...] = ("histogram", "groups", "keys", "references", "common_values")


def declarations(
    table: str, columns: Mapping[str, Iterable[str]], declared: Iterable[Declared]
) -> dict[str, Any]:
    """Return the YAML's keys of a table, whatever of `declared` there is.

    `columns` are those of all tables of the dataset.
    """
    made: dict[str, Any] = {
        "histogram": True,
        "groups": groups(table, columns[table]),
        "keys": [key] if (key := key_of(table, columns[table])) else [],
        "references": references(table, columns),
        "common_values": 100,
    }
    return {key: made[key] for key in declared if made[key]}


def groups(table: str, columns: Iterable[str]) -> list[list[str]]:
    """Return the groups of a table, of which TPC-H and TPC-DS have some of the same name."""
    listed = [group.split() for group in GROUPS.get(table, "").split(",") if group]
    return [group for group in listed if set(columns).issuperset(group)]


def key_of(table: str, columns: Iterable[str]) -> list[str]:
    """Return the columns that identify a row."""
    given = KEYS.get(table, "").split()
    if given and set(columns).issuperset(given):
        return given
    first = next(iter(columns))
    return [first] if re.search(r"(_sk|^id|key)$", first) else []


def references(table: str, columns: Mapping[str, Iterable[str]]) -> list[dict[str, Any]]:
    """Return what columns of a table refer to."""
    made = []
    for column in columns[table]:
        for ending, target in REFERENCES.items():
            other, _, key = target.partition(".")
            is_there = other in columns and key in columns[other] and other != table
            if column.endswith(ending) and is_there:
                made.append({"columns": [column], "table": other, "to": [key]})
                break
    return made
