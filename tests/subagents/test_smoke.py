from .installation import Installation
import time


def test_interrupt_time(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin(f"create a: {gate.text}")
    scene.until_writing("a")
    t = time.monotonic()
    print(scene.say("interrupt a"))
    print(time.monotonic() - t)
    print(scene.statuses("a"), place.extension(f"{scene.id}/usage")["agents"])
    assert 0
