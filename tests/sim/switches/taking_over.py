"""Broken rules of who has a subscription: what another says of it counts for nobody (protocol: exclusive-consumers)."""

from __future__ import annotations

from sim.switches.edits import Edit, Replace
from sim.switches.switch import Switch

_SHB = "gapless_shb.core.broker:SubscriberHostingBroker"
_ITS_OWN = "consumer_of(session.number, "
"""A message counts only if it comes in the session of the consumer."""
_ANYBODYS = "consumers.get("
_OF_ANOTHER_REQUEST = "if credit.request not in {0, consumer.request}:"

_TAKEOVERS = "gapless_shb.core.subscriptions.takeovers:Takeovers"
_TAKER = "gapless_shb.core.state.takers:Taker"

TAKING_OVER = (
    Switch(
        "stale_request_takes_over",
        ("stale requests",),
        "Whoever wants to take a subscription over gets it at once, although nobody may wait for that any more.",
        (Replace(f"{_TAKEOVERS}.check", "return"),),
        ("X1",),
        "A client's process asks at an SHB that stands still, or whose mail to the home is on its way for long, and"
        " ends; another one consumes at another SHB; then the request of the first one comes.",
        workload="roaming",
        routers=("knowledge",),
    ),
    Switch(
        "attempts_of_a_connection_alone",
        ("stale requests",),
        "The count of requests is compared only where the connection is the same, and a process need not confirm what"
        " it takes from itself.",
        (
            Replace(f"{_TAKER}.is_of_process", "return self.instance == other.instance"),
            Edit(
                f"{_TAKEOVERS}._check_confirmed",
                "if not request.process:",
                "if not request.process or self._taken[sid].latest.process == request.process:",
            ),
        ),
        ("X1",),
        "The same, with two connections of one process: the later one consumes, and the request of the earlier comes.",
        workload="roaming",
        routers=("knowledge",),
    ),
    Switch(
        "who_asks_again_asks_later",
        ("stale requests",),
        "Of two consumers of a process the one holds whose client has asked the broker later, also where it has asked"
        " again by itself.",
        (Replace(f"{_TAKER}.is_before", "return self.attempt < other.attempt"),),
        ("X1",),
        "A process asks for a subscription that another consumer of its connection has, and the link ends before that"
        " one hears of it. Both ask again, away from home, and the earlier one comes last.",
        workload="roaming",
        routers=("knowledge",),
    ),
    Switch(
        "zombie_acknowledges",
        ("T35",),
        "Whoever once consumed a subscription can acknowledge for it.",
        (Edit(f"{_SHB}._on_acknowledge", _ITS_OWN, _ANYBODYS),),
        ("I8", "I5"),
        "Two processes of one client: the second takes the subscription over with the token that was committed last;"
        " the first does not hear of it (that way is cut), goes on, and acknowledges what it had been sent, above the"
        " second one's position; then the PHB chops. Heard are the acknowledgements of the holder alone.",
    ),
    Switch(
        "credit_of_another_session",
        ("T26",),
        "Whoever once consumed a subscription can give credit for it.",
        (
            Edit(f"{_SHB}._on_credit", _ITS_OWN, _ANYBODYS),
            Edit(
                f"{_SHB}._on_credit",
                _OF_ANOTHER_REQUEST,
                f"if consumer.channel.session == session.number and {_OF_ANOTHER_REQUEST.removeprefix('if ')}",
            ),
        ),
        ("P1",),
        "A second process takes a subscription over, while the first one goes on to take what it has and to give"
        " credit; the second one has a small window, and more waits for it than it takes at once.",
    ),
    Switch(
        "credit_of_the_one_before",
        ("T26",),
        "What a consumer gives credit for counts for the one that took the subscription over from it in its session.",
        (Edit(f"{_SHB}._on_credit", _OF_ANOTHER_REQUEST, "if credit.request < 0:"),),
        ("P1",),
        "A process takes a subscription over from itself while credit of its earlier consumer is on its way: that one"
        " had a small window full of events, and takes them just then. The later one has a small window, too, and"
        " more waits for it than it takes at once.",
    ),
    Switch(
        "credit_inherited",
        ("T26",),
        "Whoever takes a subscription over goes on with what credit the one before had left, not with its own.",
        (
            Edit(
                "gapless_shb.core.subscriptions.attach:Subscribing._attach_existing",
                "    again = self.on_subscribe\n",
                "    again = self.on_subscribe\n    holder = self._hosting.consumers.get(sid)\n",
            ),
            Edit(
                "gapless_shb.core.subscriptions.attach:Subscribing._attach_existing",
                "        self._attach(session, request, subscription, now, wall, created=False)",
                "        if holder is not None:\n"
                '            left = {"credit_events": holder.credit_events, "credit_bytes": holder.credit_bytes}\n'
                '            request = __import__("msgspec").structs.replace(request, **left)\n'
                "        self._attach(session, request, subscription, now, wall, created=False)",
            ),
        ),
        ("P1",),
        "Who takes over has a smaller window than the one before, and more waits for it than it takes at once.",
    ),
)
