# SPDX-License-Identifier: Apache-2.0
"""A loader's counters, readable."""

from __future__ import annotations

from html import escape
from typing import Any, Iterator

# What stays as it is when counters are subtracted: states and extremes, no sums.
_LEVELS = frozenset("first_batch_seconds memory_budget memory_limit memory_high_water pinned_bytes device_bytes "
                    "io_depth io_direct io_registered n_workers threads huge_pages numa_node".split())


class Stats(dict[str, Any]):
    """The counters as a dict; str() and a notebook show a table. Seconds of stages are sums over their threads."""

    def since(self, before: Stats) -> Stats:
        """What was counted after `before`, earlier counters of the same loader."""
        out: dict[str, Any] = _minus(self, before)
        stages = {name: _minus(stage, before["stages"][name]) for name, stage in self["stages"].items()}
        out["stages"] = stages
        slowest = max(stages, key=lambda name: float(stages[name]["stall"]))
        out["limiting"] = slowest if stages[slowest]["stall"] > 0 else "consumer"
        return Stats(out)

    def rate(self) -> float:
        """Samples per second."""
        return float(self["samples"]) / float(self["seconds"]) if self["seconds"] else 0.0

    def waited(self) -> float:
        """Share of the time, 0 to 1, that the consumer waited for a batch."""
        return float(self["stall_seconds"]) / float(self["seconds"]) if self["seconds"] else 0.0

    def summary(self) -> str:
        """One line."""
        text = (f"{self['samples']:,} samples in {self['seconds']:.1f} s ({self.rate():,.0f}/s), "
                f"waited {self['stall_seconds']:.2f} s ({100 * self.waited():.1f}%)")
        if self["stall_seconds"] and self["limiting"] != "consumer":
            text += f", mostly for {self['limiting']}"
        if self["bad_samples"]:
            text += f", {self['bad_samples']} bad samples"
        return text

    def scalars(self, prefix: str = "feedline/") -> dict[str, float]:
        """Numbers for TensorBoard and other loggers: {name: value}. Those worth a curve; the rest is in the dict."""
        names = ("samples batches bad_samples substituted stall_seconds cpu_seconds memory_high_water bytes_read "
                 "decoded_cpu decoded_gpu").split()
        flat = {name: float(self[name]) for name in names}
        flat["samples_per_second"] = self.rate()
        flat["waited"] = self.waited()
        for name, stage in self["stages"].items():
            flat[f"stall/{name}"] = float(stage["stall"])
            flat[f"busy/{name}"] = float(stage["busy"])
        return {prefix + name: value for name, value in flat.items()}

    _HEAD = ("stage", "threads", "busy s", "waits for input s", "waits for output s", "stalls next s", "items")

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for name, s in self["stages"].items():
            yield (name, str(s["threads"] or ""), f"{s['busy']:.2f}", f"{s['wait_in']:.2f}",
                   f"{s['wait_out']:.2f}", f"{s['stall']:.2f}", f"{s['items']:,}")

    def __str__(self) -> str:
        rows = [self._HEAD, *self._rows()]
        widths = [max(len(r[i]) for r in rows) for i in range(len(self._HEAD))]
        lines = ["  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths))) for r in rows]
        return "\n".join([*lines, self.summary()])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{h}</th>" for h in self._HEAD)
        body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in r) + "</tr>" for r in self._rows())
        how = f"{self['io_backend']}, {self['n_workers']} workers, {self['memory_budget'] / 2**20:,.0f} MiB"
        return (f"<table><tr>{head}</tr>{body}</table><p>{escape(self.summary())}<br>{escape(how)}"
                f"<br>{escape(self['io_reason'])}</p>")


def _minus(now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {name: value - before[name] if isinstance(value, (int, float)) and name not in _LEVELS else value
            for name, value in now.items() if name != "stages"}
