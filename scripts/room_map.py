#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""room_map.py [PAGE]: compares the table of rooms in docs/architecture.md with what the sources include. The table's last column
has, for each room, the folders and headers of other rooms that it includes, and every room may include those of EVERYBODY.
Prints each include that is not in the table, and what is in the table but not included; exit status 1 when there is any."""

import os
import re
import subprocess
import sys

EVERYBODY = ("gmac/base/", "gmac/api/adsm")
# Programs that measure a room or show its use are not the room.
BESIDE = re.compile(r"/(?:bench|examples)/")
ROW = re.compile(r"^\| `([\w/]+/)` \|.*\| ([^|]*) \|$", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([\w/.]+/[\w.]+)"', re.MULTILINE)


def rooms(page):
    """Room -> what the table says that it includes, as paths from the root."""
    with open(page, encoding="utf-8") as file:
        table = file.read().partition("| room | what it does | includes |")[2].partition("\n\n")[0]
    found = {room: re.findall(r"`([^`]+)`", includes) for room, includes in ROW.findall(table) if "everything" not in includes}
    return {room: [path if os.path.exists(path) else "gmac/" + path for path in paths] for room, paths in found.items()}


def included(room, all_rooms):
    """Header -> a file of the room that includes it, for headers of other rooms."""
    found = {}
    for file in subprocess.run(("git", "ls-files", "--cached", "--others", "--exclude-standard", room), text=True, check=True,
                               stdout=subprocess.PIPE).stdout.split():
        owner = max((each for each in all_rooms if file.startswith(each)), key=len)
        if owner != room or BESIDE.search(file) or not file.endswith((".cc", ".cu", ".h")):
            continue
        with open(file, encoding="utf-8") as source:
            for header in INCLUDE.findall(source.read()):
                if not header.startswith((room,) + EVERYBODY) and os.path.exists(header):
                    found.setdefault(header, file)
    return found


def main():
    page = sys.argv[1] if len(sys.argv) > 1 else "docs/architecture.md"
    table = rooms(page)
    wrong = [] if table else ["has no table of rooms"]
    for room, allowed in table.items():
        headers = included(room, table)
        wrong += ["{} includes {} ({}), which its row does not name".format(room, header, file)
                  for header, file in headers.items() if not header.startswith(tuple(allowed))]
        wrong += ["{} includes nothing of {}, which its row names".format(room, path)
                  for path in allowed if not any(header.startswith(path) for header in headers)]
    for message in wrong:
        print("{}: {}".format(page, message))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
