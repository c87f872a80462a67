#!/usr/bin/env python3
"""A policy of one's own: every guest what it demands and a reserve, what is left by shares.

One question a line on standard input, one answer a line on standard output; docs/policies.md
describes both. What is written to standard error appears in the daemon's log.
"""

import json
import sys


def decide(question):
    guests, left = question["guests"], question["budget_bytes"]
    # Floors come first: the daemon raises what is below, and judges the sum after that.
    targets = {guest["guest"]: guest["floor_bytes"] for guest in guests}
    left -= sum(targets.values())
    wants = {}
    for guest in guests:
        want = guest["demand_bytes"] + question["reserve_bytes"]
        want = min(max(want, guest["floor_bytes"]), guest["ceiling_bytes"])
        wants[guest["guest"]] = want - guest["floor_bytes"]
    # Whole numbers only: a target of 1.5 bytes is no answer.
    wanted = sum(wants.values())
    for name, want in wants.items():
        targets[name] += want if wanted <= left else want * left // wanted
    left -= min(wanted, left)
    shares = sum(guest["shares"] for guest in guests)
    for guest in guests:
        targets[guest["guest"]] += left * guest["shares"] // shares
    return targets


for line in sys.stdin:
    asked = json.loads(line)
    answer = {"question": asked["question"], "targets": decide(asked)}
    print(json.dumps(answer), flush=True)
