"""An object store that fails while commands read and write."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.bench import Outcome, defects
from tests.faults.children import Ended, Server
from tests.faults.proxy import Plan, Proxy, proxy, random_plan
from tests.faults.shop import Shop, check_converged, check_readers
from tests.integration.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore, running_object_store

KIND = "stores"
SHARES = {"run": 70, "gc": 10, "status": 10, "docs": 10}
ARGUMENTS = {
    "run": ["run", "--quiet"],
    "gc": ["gc"],
    "status": ["status", "--output", "json"],
    "docs": ["docs", "--quiet"],
}
ENDPOINT = "SHOP_ENDPOINT"
TIMEOUT = "SHOP_TIMEOUT"
# Requests to a store that does not answer have a short timeout, as trials must be short. On a busy
# machine an answer may take as long: only the command that is to fail has that timeout.
_IMPATIENT = "3s"
_PATIENT = "120s"
# After so many changes a shop has become slow.
_TRIALS_PER_SHOP = 12


@dataclass
class StoreBench:
    """A store, a proxy before it, and shops in it."""

    folder: Path
    server: Server
    store: ObjectStore
    proxy: Proxy
    shop: Shop = field(init=False)
    requests: dict[str, int] = field(default_factory=dict)
    trials: int = 0
    shops: int = 0

    def environment(self, endpoint: str, timeout: str = _PATIENT) -> dict[str, str]:
        """Return the environment of a process whose requests to the store have a `timeout`."""
        return {
            ENDPOINT: endpoint,
            TIMEOUT: timeout,
            "AWS_ENDPOINT": endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def renew(self) -> Shop:
        """A shop in a place of its own, all of it up to date."""
        self.shops += 1
        base = self.store.uri(f"shop{self.shops}")
        options = {
            "aws_endpoint": f"{{{{ env_var('{ENDPOINT}') }}}}",
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
            "allow_http": "true",
            "timeout": f"{{{{ env_var('{TIMEOUT}') }}}}",
            "client_max_retries": "2",
            "client_retry_timeout": "5",
        }
        tables = ("returns", "l", "r")
        self.shop = Shop(self.folder / f"shop{self.shops}", base, options, tables)
        self.shop.folder.mkdir()
        self.shop.declare()
        self.shop.stock()
        end = self.run("run")
        assert end.code == 0, end.output
        self.shop.change(random.Random(1))
        for command in ARGUMENTS:
            self.proxy.plan = Plan()
            end = self.run(command)
            assert end.code == 0, end.output
            self.requests[command] = self.proxy.plan.seen
        self.trials = 0
        return self.shop

    def run(self, *commands: str, timeout: str = _PATIENT) -> Ended:
        """Run commands through the proxy."""
        reached = self.environment(self.proxy.endpoint, timeout)
        environment = {**self.shop.environment(), **reached}
        arguments = [ARGUMENTS.get(command) or command.split() for command in commands]
        return self.server.start(arguments, self.shop.folder, environment).wait()


def fail(bench: StoreBench, command: str, rng: random.Random) -> Outcome:
    """Let the store fail while a command runs."""
    if not bench.trials:
        bench.renew()
    bench.trials = (bench.trials + 1) % _TRIALS_PER_SHOP
    bench.shop.change(rng)
    bench.proxy.plan = plan = random_plan(rng, bench.requests[command])
    end = bench.run(command, timeout=_IMPATIENT)
    bench.proxy.plan = Plan()
    what = f"{plan.action} x {plan.count} from request {plan.first}"
    problems = [*defects(end), *check_readers(bench.shop)]
    later = bench.run("run", "plan --check", "gc")
    if later.code:
        problems.append(f"the next run does not converge: {later.output[-600:]}")
    else:
        problems += check_converged(bench.shop)
    if problems:
        bench.trials = 0
    return plan.struck > 0, [f"{what}: {problem}" for problem in problems]


@contextmanager
def store_bench(folder: Path) -> Iterator[StoreBench]:
    """A store and its proxy, up while the block runs; this process reaches the store directly."""
    (folder / "store").mkdir(parents=True)
    with (
        Server(folder / "server") as server,
        running_object_store(folder / "store") as store,
        proxy(store.endpoint) as before,
    ):
        made = StoreBench(folder, server, store, before)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in made.environment(store.endpoint).items():
                patch.setenv(name, value)
            yield made
