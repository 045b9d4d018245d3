"""Write a corpus and a dataset of the problem world: `python -m tools.world.corpus --seed 1 --out DIR`."""

import argparse
from pathlib import Path

from mathrag_gate.demo import world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--setting", choices=world.names(), help="default: the demo's")
    parser.add_argument("--operators", type=int, help=f"at most {len(world.TEST_NAMES)}; default: the setting's")
    parser.add_argument("--items", type=int, help="default: the setting's")
    options = parser.parse_args()
    sizes = {name: size for name in ("operators", "items") if (size := getattr(options, name)) is not None}
    chosen = world.read(options.setting) if options.setting else world.Setting()
    world.write(world.build(options.seed, world.change_setting(chosen, **sizes)), options.out)


if __name__ == "__main__":
    main()
