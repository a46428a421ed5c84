"""What the stories of all Python clients share: the broker's address, checks that say
what they wanted, and the way to choose a story by its name."""

import asyncio
import inspect
import json
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from datetime import datetime, timezone

URI = os.environ["AMQP_URI"]
HTTP_URI = os.environ["HTTP_URI"]
VHOST = os.environ["AMQP_VHOST"]
PATIENCE = 20  # seconds for whatever must come about

_stories = {}


def story(play):
    """Makes a function, or a coroutine function, the story of its name."""
    _stories[play.__name__.replace("_", "-")] = play
    return play


def main():
    """Plays the story that the command line names."""
    play = _stories[sys.argv[1]]
    if inspect.iscoroutinefunction(play):
        asyncio.run(play())
    else:
        play()


def check(what, got, want):
    """Fails the story unless got equals want."""
    if got != want:
        raise AssertionError(f"{what} is {got!r}, want {want!r}")


def until(what, holds, step=lambda: time.sleep(0.02)):
    """Takes steps until holds() is true."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"in {PATIENCE} s it did not come about that {what}")
        step()


def letter(queue):
    """What the Dead Letter Office says of the one letter of the queue."""
    where = f"{HTTP_URI}/api/office/letters/{urllib.parse.quote(VHOST, safe='')}/{queue}"
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, HTTP_URI, "guest", "guest")
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))

    def answer(path):
        with opener.open(path) as response:
            return json.load(response)

    until(f"{queue} has a letter", lambda: len(answer(where)["items"]) == 1)
    return answer(f"{where}/{answer(where)['items'][0]['id']}")


def check_cause(letter, origin, error_class, error, detail):
    """Checks why a letter died, by whose word, and that its detail has a text."""
    cause = letter["cause"]
    check("from", cause["from"], origin)
    check("class", cause["class"], error_class)
    check("error", cause["error"], error)
    if detail not in cause["detail"]:
        raise AssertionError(f"the detail is {cause['detail']!r}, want {detail!r} in it")


def restart_broker():
    """Kills the broker with SIGKILL and returns when it serves again."""
    subprocess.run([os.environ["INTEROP_RESTART"]], check=True)


def check_survivors(bodies):
    """Checks what came after the broker was killed: 3 to 10, in order. Acknowledgements
    have no answer, so that 0 to 2, which were acknowledged, may come again before."""
    want = [b"%d" % i for i in range(3, 11)]
    check("bodies", bodies[-len(want):], want)
    again = bodies[: -len(want)]
    check("what comes again", again, [b"0", b"1", b"2"][3 - len(again):])


def count_of(headers, queue, reason):
    """How often the message died in queue for reason, 0 if it never did."""
    for death in (headers or {}).get("x-death", []):
        if (death["queue"], death["reason"]) == (queue, reason):
            return death["count"]
    return 0


def check_rejected(headers):
    """Checks what headers say of a message from exchange jobs, rejected in work."""
    check("header trace", headers.get("trace"), "t-1")
    check("number of deaths", len(headers["x-death"]), 1)
    death = headers["x-death"][0]
    for key, want in {"reason": "rejected", "queue": "work", "exchange": "jobs", "routing-keys": ["job"], "count": 1}.items():
        check("x-death " + key, death.get(key), want)
    at = death["time"]
    if at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    age = (datetime.now(timezone.utc) - at).total_seconds()
    if not -5 < age < 60:
        raise AssertionError(f"x-death time {at} is {age} s ago")
    for which in "first", "last":
        for key, want in {"reason": "rejected", "queue": "work", "exchange": "jobs"}.items():
            name = f"x-{which}-death-{key}"
            check(name, headers.get(name), want)
