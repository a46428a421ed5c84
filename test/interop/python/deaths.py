"""What the stories of AMQP 1.0 check of x-opt-deaths and of headers, for clients whose
types are those of Qpid Proton."""

import time

from interop import check


def annotation(message, name):
    return (message.annotations or {}).get(name)


def deaths(message):
    """The elements of x-opt-deaths with plain keys, the newest first."""
    array = annotation(message, "x-opt-deaths")
    return [{str(key): value for key, value in death.items()} for death in (array.elements if array else [])]


def count_of(message, queue, reason):
    """How often the message died in queue for reason, 0 if it never did."""
    for death in deaths(message):
        if (death["queue"], death["reason"]) == (queue, reason):
            return int(death["count"])
    return 0


def check_rejected(message):
    """Checks what annotations say of a message from exchange jobs, rejected in work."""
    check("number of deaths", len(deaths(message)), 1)
    death = deaths(message)[0]
    keys = death.pop("routing-keys")
    check("routing keys", list(keys.elements), ["job"])
    first, last = death.pop("first-time"), death.pop("last-time")
    check("x-opt-deaths", death, {"queue": "work", "reason": "rejected", "count": 1, "exchange": "jobs"})
    check("last-time", last, first)
    age = time.time() - int(first) / 1000
    if not -5 < age < 60:
        raise AssertionError(f"first-time is {age} s ago")
    for which in "first", "last":
        for key, want in {"reason": "rejected", "queue": "work", "exchange": "jobs"}.items():
            name = f"x-{which}-death-{key}"
            check(name, annotation(message, name), want)


def check_dead_letter(message, properties):
    """Checks a message that was rejected in work and came to dead through dlx, and its
    application properties."""
    check("body", bytes(message.body), b"broken")
    check("message id", message.id, "m-1")
    check("application property trace", properties["trace"], "t-1")
    check("first-acquirer", message.first_acquirer, False)
    check("way", [annotation(message, "x-exchange"), annotation(message, "x-routing-key")], ["dlx", "dead"])
    check_rejected(message)


def check_header(message, first_acquirer, delivery_count):
    check("first-acquirer", message.first_acquirer, first_acquirer)
    check("delivery-count", message.delivery_count, delivery_count)
