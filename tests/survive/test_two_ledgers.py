"""Two ledger processes on the same shards.

Bug class: two replicas that both see an idle session with a queued prompt and both dispatch it.
"""

import subprocess
import sys
from collections import Counter

from harness import checks, limits
from harness.platform import Platform
from harness.waiting import until


def test_two_ledgers_dispatch_every_prompt_once(platform: Platform) -> None:
    supervised = platform.find("valet_session_ledger", among=platform.processes())
    environ = {key: value for key, value in supervised.environ().items() if key != "NOTIFY_SOCKET"}
    log = platform.data_dir / "second-ledger.log"
    with log.open("w") as stderr:
        second = subprocess.Popen([sys.executable, "-m", "valet_session_ledger"], env=environ, stderr=stderr)
    try:
        until(lambda: second.poll() is None and log.read_text(), limits.READY, "the second ledger to speak")
        session = platform.create()["id"]
        with platform.follow(session) as follower:
            accepted = [platform.prompt(session, f"say number {number}")["prompt_id"] for number in range(8)]
            follower.wait(lambda _: follower.count("agent.turn_ended") >= 8, what="eight turns")
            dispatched = Counter(
                event.data["prompt_id"] for event in follower.events if event.type == "fact.turn_dispatched"
            )
            assert dispatched == Counter(accepted)
            checks.exactly_once(platform, session, follower)
        # either of them can go at any moment
        supervised.kill()
        platform.prompt(session, "say one more")
        with platform.follow(session) as follower:
            follower.wait(lambda _: follower.count("agent.turn_ended") >= 9, what="the ninth turn")
    finally:
        second.terminate()
        second.wait(limits.STOP)
    checks.rebuilt_equals_live(platform)
