"""Print what Ray costs: the bundled model through `fleet submit` against `worker bench`, interleaved, in tokens per second.

usage: .venv/bin/python tests/speed/ray_overhead.py [ROUNDS]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

BIN = Path(sys.executable).parent
STUDY = """
name = "ray-overhead"
[checkpoint]
source = "demo"
[prompts]
file = "prompts.jsonl"
[matrix]
verify_width = [3]
slots_per_layer = [32]
[protocol]
max_tokens = 64
repeats = 5
"""
PROMPT = "def median(values):\n    ordered = sorted(values)\n"


def through_ray(study: Path, data: Path) -> tuple[float, float]:
    run = [BIN / "fleet", "submit", study, "--again", "--data", data, "--json"]
    subprocess.run(run, check=True, capture_output=True)
    report = [BIN / "fleet", "report", "--data", data, "--format", "json"]
    row = json.loads(subprocess.run(report, check=True, capture_output=True).stdout)["rows"][0]
    return row["greedy_decode_tok_s"]["median"], row["speculative_decode_tok_s"]["median"]


def directly() -> tuple[float, float]:
    run = [
        BIN / "worker", "bench", "--raw", "--prompt", PROMPT, "--slots", "32", "--max-tokens", "64", "--repeats", "5",
        "--json", "-",
    ]  # fmt: skip
    row = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    return row["greedy_decode_tok_s"]["median"], row["speculative_decode_tok_s"]["median"]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    ratios: dict[str, list[float]] = {"greedy": [], "speculative": []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "study.toml").write_text(STUDY)
        (root / "prompts.jsonl").write_text(json.dumps({"id": "p", "category": "code", "chat": False, "text": PROMPT}))
        for done in range(rounds):
            pair = [lambda: through_ray(root / "study.toml", root / "data"), directly]
            results = [run() for run in (pair if done % 2 == 0 else reversed(pair))]
            ray, bench = results if done % 2 == 0 else reversed(results)
            for index, path in enumerate(ratios):
                ratios[path].append(ray[index] / bench[index])
            print(
                f"round {done + 1}: Ray {ray[0]:.1f} / {ray[1]:.1f}, bench {bench[0]:.1f} / {bench[1]:.1f} tok/s",
                flush=True,
            )
    for path, values in ratios.items():
        print(
            f"{path}: Ray over bench {median(values):.3f} (from {min(values):.3f} to {max(values):.3f}, {rounds} rounds)"
        )


if __name__ == "__main__":
    main()
