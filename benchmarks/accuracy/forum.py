"""A forum in the schema of STATS, with power-law degrees and columns that depend on each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Rows at scale 1, those of STATS.
ROWS = {
    "users": 40_325,
    "posts": 91_976,
    "comments": 174_305,
    "votes": 328_064,
    "post_history": 303_187,
    "badges": 79_851,
    "post_links": 11_102,
    "tags": 1_032,
}
# Days since 1970: 2010-07-19 to 2014-09-14.
FIRST, LAST = 14_809, 16_327
# Where the tails of the power laws end, in least weights.
MOST = 1_000
Columns = dict[str, pa.Array]


def write_forum(folder: Path, scale: float, seed: int) -> None:
    """Write the tables as `<table>.parquet`."""
    rows = {table: max(50, int(count * scale)) for table, count in ROWS.items()}
    forum = Forum(rows, np.random.default_rng(seed))
    for table in ROWS:
        columns: Columns = getattr(forum, f"_{table}")()
        pq.write_table(pa.table(columns), folder / f"{table}.parquet")


class Forum:
    """Draws the tables; later ones refer to earlier ones."""

    def __init__(self, rows: dict[str, int], random: np.random.Generator) -> None:
        self.rows = rows
        self.random = random
        # How much a user does, and how much a post is read.
        self.activity = shares(np.minimum(random.pareto(1.1, rows["users"]), MOST) + 0.05)
        self.attention = shares(np.minimum(random.pareto(1.3, rows["posts"]), MOST) + 0.05)
        # Active users joined early.
        age = np.argsort(np.argsort(-self.activity)) / rows["users"]
        age = np.clip(0.5 * age + 0.6 * random.random(rows["users"]), 0, 1)
        self.joined = (FIRST + age * (LAST - FIRST)).astype(np.int32)
        self.owner = self._someone(rows["posts"])
        self.posted = self._later(self.joined[self.owner], 200)
        self.type = random.choice([1, 2, 3, 4, 5], rows["posts"], p=[0.46, 0.51, 0.01, 0.01, 0.01])

    def _users(self) -> Columns:
        count = self.rows["users"]
        reputation = 1 + (self.activity * count * 60 * self._noise(count)).astype(np.int64)
        up_votes = (reputation * 0.1 * self._noise(count)).astype(np.int64)
        down_votes = np.where(reputation > 2_000, up_votes // 20, 0)
        views = (reputation * 0.08 * self._noise(count)).astype(np.int64)
        return {
            "id": ids(count),
            "reputation": pa.array(reputation),
            "creation_date": dates(self.joined),
            "views": pa.array(views),
            "up_votes": pa.array(up_votes),
            "down_votes": pa.array(down_votes),
        }

    def _posts(self) -> Columns:
        count, is_question = self.rows["posts"], self.type == 1
        attention = self.attention * count
        score = (attention * 2 * self._noise(count)).astype(np.int64) - 1
        answers = np.minimum((attention * self._noise(count)).astype(np.int64), 30)
        views = (attention * 300 * self._noise(count)).astype(np.int64) + 10
        comments = self.random.poisson(np.minimum(attention * 1.9, 45))
        favorites = np.maximum(score // 3, 0)
        return {
            "id": ids(count),
            "post_type_id": pa.array(self.type),
            "creation_date": dates(self.posted),
            "score": pa.array(score),
            # Only questions have views and answers, and few have favorites.
            "view_count": pa.array(views, mask=~is_question),
            "owner_user_id": self._references(self.owner, 0.02),
            "answer_count": pa.array(answers, mask=~is_question),
            "comment_count": pa.array(comments),
            "favorite_count": pa.array(favorites, mask=~is_question | (favorites == 0)),
            "last_editor_user_id": self._references(self._someone(count), 0.5),
        }

    def _comments(self) -> Columns:
        count = self.rows["comments"]
        post = self._something(count)
        user = np.where(self.random.random(count) < 0.3, self.owner[post], self._someone(count))
        return {
            "id": ids(count),
            "post_id": pa.array(post + 1),
            "score": pa.array(np.maximum(self.random.geometric(0.6, count) - 1, 0)),
            "creation_date": dates(self._later(self.posted[post], 20)),
            "user_id": self._references(user, 0.02),
        }

    def _votes(self) -> Columns:
        count = self.rows["votes"]
        post = self._something(count)
        kinds = [1, 2, 3, 5, 6, 8, 9, 16]
        weights = [0.09, 0.76, 0.05, 0.07, 0.005, 0.01, 0.005, 0.01]
        kind = self.random.choice(kinds, count, p=weights)
        # Only favorites and bounties have a user, only bounties an amount.
        is_named, is_bounty = np.isin(kind, [5, 8]), np.isin(kind, [8, 9])
        bounty = 50 * self.random.geometric(0.6, count)
        return {
            "id": ids(count),
            "post_id": pa.array(post + 1),
            "vote_type_id": pa.array(kind),
            "creation_date": dates(self._later(self.posted[post], 120)),
            "user_id": pa.array(self._someone(count) + 1, mask=~is_named),
            "bounty_amount": pa.array(bounty, mask=~is_bounty),
        }

    def _post_history(self) -> Columns:
        count = self.rows["post_history"]
        post = self.random.choice(self.rows["posts"], count, p=shares(self.attention**0.5))
        is_owner = self.random.random(count) < 0.85
        user = np.where(is_owner, self.owner[post], self._someone(count))
        first = self.random.choice([1, 2, 3], count)
        later = self.random.choice([4, 5, 6, 10, 24], count, p=[0.1, 0.7, 0.1, 0.05, 0.05])
        return {
            "id": ids(count),
            # Owners begin posts, others edit them.
            "post_history_type_id": pa.array(np.where(is_owner, first, later)),
            "post_id": pa.array(post + 1),
            "creation_date": dates(self._later(self.posted[post], 30)),
            "user_id": self._references(user, 0.05),
        }

    def _badges(self) -> Columns:
        count = self.rows["badges"]
        user = self._someone(count)
        return {
            "id": ids(count),
            "user_id": pa.array(user + 1),
            "award_date": dates(self._later(self.joined[user], 250)),
        }

    def _post_links(self) -> Columns:
        count = self.rows["post_links"]
        post = self._something(count)
        return {
            "id": ids(count),
            "creation_date": dates(self._later(self.posted[post], 300)),
            "post_id": pa.array(post + 1),
            "related_post_id": pa.array(self._something(count) + 1),
            "link_type_id": pa.array(self.random.choice([1, 3], count, p=[0.9, 0.1])),
        }

    def _tags(self) -> Columns:
        count = self.rows["tags"]
        uses = (self.random.pareto(0.8, count) * 5).astype(np.int64) + 1
        return {
            "id": ids(count),
            "uses": pa.array(np.minimum(uses, self.rows["posts"])),
            "excerpt_post_id": self._references(self._something(count), 0.4),
        }

    def _someone(self, count: int) -> np.ndarray:
        return self.random.choice(self.rows["users"], count, p=self.activity)

    def _something(self, count: int) -> np.ndarray:
        return self.random.choice(self.rows["posts"], count, p=self.attention)

    def _noise(self, count: int) -> np.ndarray:
        return self.random.lognormal(0, 0.6, count)

    def _later(self, days: np.ndarray, mean: int) -> np.ndarray:
        return np.minimum(days + self.random.exponential(mean, len(days)), LAST).astype(np.int32)

    def _references(self, places: np.ndarray, nulls: float) -> pa.Array:
        return pa.array(places + 1, mask=self.random.random(len(places)) < nulls)


def ids(count: int) -> pa.Array:
    """Return 1 to count."""
    return pa.array(np.arange(1, count + 1))


def dates(days: np.ndarray) -> pa.Array:
    """Return dates of days since 1970."""
    return pa.array(days.astype(np.int32)).cast(pa.date32())


def shares(weights: np.ndarray) -> np.ndarray:
    """Return weights that add up to one."""
    return weights / weights.sum()
