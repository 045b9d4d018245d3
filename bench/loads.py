"""Count the model loads of one job of any size; the paper's pipeline needs two.

.venv/bin/python -m bench.loads
"""

from bench.throughput import PARAMS, furnish, line, throughput_stack

SIZES = (1, 10, 500, 5000)


def main() -> None:
    """Run a job of each size on one stack, with models that answer at once."""
    with throughput_stack(chunk=16, judges=1) as running:
        furnish(running, max(SIZES))
        print("| samples | model loads |\n|---|---|")
        for size in SIZES:
            name = f"items-{size}"
            running.upload("datasets", name, (line({"question": f"What is w{item}x?"}) for item in range(size)))
            job = running.run(
                name=name, dataset=name, corpus="documents", pipeline="mathrag-gate", params=PARAMS, reuse="none"
            )
            loads = running.get(f"/v1/jobs/{job['id']}/report")["model_loads"]
            print(f"| {size} | {loads} |", flush=True)


if __name__ == "__main__":
    main()
