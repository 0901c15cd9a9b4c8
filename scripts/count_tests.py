#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""count_tests.py EVENTS [FAILURE...]: counts the test cases of one `bazel test` from its build events. Prints what failed,
the given failures of other steps included, and "N passed, N failed"."""

import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


def test_results(events_path):
    """(label, status, path of the XML or None) of every test, or shard of one, that ran; the last attempt of each."""
    results = {}
    with open(events_path, encoding="utf-8") as events:
        for line in events:
            event = json.loads(line)
            if "testResult" not in event:
                continue
            test = event["id"]["testResult"]
            result = event["testResult"]
            xml = None
            for output in result.get("testActionOutput", []):
                if output["name"] == "test.xml":
                    xml = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
            results[test["label"], test.get("shard", 0)] = (result["status"], xml)
    return [(label, status, xml) for (label, _), (status, xml) in sorted(results.items())]


def count(xml_path):
    """(passed, failed names, skipped) of the cases in one XML file; None when it holds no GoogleTest cases."""
    try:
        root = ElementTree.parse(xml_path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    passed, failed, skipped = 0, [], 0
    for case in root.iter("testcase"):
        name = "{}.{}".format(case.get("classname", ""), case.get("name", ""))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            skipped += 1
        elif case.get("status") != "notrun":
            passed += 1
    return passed, failed, skipped


def main():
    passed, failed, skipped = 0, sys.argv[2:], 0
    for label, status, xml in test_results(sys.argv[1]):
        cases = count(xml) if xml else None
        if cases is None:
            # Not a GoogleTest program: the target is the case.
            cases = (1, [], 0) if status == "PASSED" else (0, [], 0)
        passed += cases[0]
        skipped += cases[2]
        failed += ["{}: {}".format(label, name) for name in cases[1]]
        if status != "PASSED" and not cases[1]:
            failed.append("{}: {}".format(label, status.lower()))
    for name in failed:
        print("failed: " + name)
    print("{} passed, {} failed".format(passed, len(failed)) + (", {} skipped".format(skipped) if skipped else ""))
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
