"""The app of the worker in the recorded scenario: a function for each kind of end that a worker reports."""

from __future__ import annotations

import time

from duetime import Context, Duetime, Reject, Retry

app = Duetime()


@app.job(name="greet")
def greet(name: str, context: Context, *, mark: str = "!") -> dict[str, str]:
    context.log("greeting", name)
    context.save_progress({"done": 1})
    print("printed")  # noqa: T201 (goes to the log of the execution)
    return {"greeting": f"hello {name}{mark}"}


@app.job(name="fail")
def fail() -> None:
    raise ValueError("this never works")


@app.job(name="refuse")
def refuse() -> None:
    raise Reject("this is never accepted")


@app.job(name="later")
def later() -> None:
    raise Retry(86_400, "not now")


@app.job(name="hang")
def hang() -> None:
    time.sleep(600)


@app.job(name="declared", schedule="0 3 * * *", tags={"from": "the app"})
def declared() -> None:
    """Declared by the app: its worker creates the job."""
