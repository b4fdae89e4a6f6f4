# SPDX-License-Identifier: Apache-2.0
"""A loader's counters, readable."""


class Stats(dict):
    """The counters as a dict; str() and a notebook show a table."""

    def rate(self):
        """Samples per second since the loader was opened."""
        return self["samples"] / self["seconds"] if self["seconds"] else 0.0

    def summary(self):
        """One line."""
        stall = self["stall_seconds"]
        share = 100 * stall / self["seconds"] if self["seconds"] else 0.0
        text = (f"{self['samples']} samples in {self['seconds']:.1f} s ({self.rate():.0f}/s), "
                f"waited {stall:.2f} s ({share:.1f}%)")
        if stall:
            text += f", mostly for {self['limiting']}"
        if self["bad_samples"]:
            text += f", {self['bad_samples']} bad samples"
        return text

    def scalars(self, prefix="feedline/"):
        """Numbers for TensorBoard and other loggers: {name: value}."""
        flat = {k: v for k, v in self.items() if isinstance(v, (int, float))}
        for name, stage in self["stages"].items():
            flat[f"stall/{name}"] = stage["stall"]
            flat[f"busy/{name}"] = stage["busy"]
        flat["samples_per_second"] = self.rate()
        return {prefix + k: v for k, v in flat.items()}

    def _rows(self):
        for name, s in self["stages"].items():
            yield (name, s["threads"] or "", f"{s['busy']:.2f}", f"{s['wait_in']:.2f}",
                   f"{s['wait_out']:.2f}", f"{s['stall']:.2f}", s["items"])

    _HEAD = ("stage", "threads", "busy s", "waits for input s", "waits for output s", "stalls next s", "items")

    def __str__(self):
        rows = [self._HEAD, *self._rows()]
        widths = [max(len(str(r[i])) for r in rows) for i in range(len(self._HEAD))]
        lines = ["  ".join(str(c).rjust(w) if i else str(c).ljust(w)
                           for i, (c, w) in enumerate(zip(r, widths))) for r in rows]
        return "\n".join([*lines, self.summary()])

    def _repr_html_(self):
        head = "".join(f"<th>{h}</th>" for h in self._HEAD)
        body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in r) + "</tr>" for r in self._rows())
        return f"<table><tr>{head}</tr>{body}</table><p>{self.summary()}</p>"
