"""The operations of the API on alerts, their rules, silences and channels; see operations.py."""

from __future__ import annotations

from duetime.client import models as m
from duetime.client.batch import Definition
from duetime.client.calls import Call, get, path_of, send


def list_alerts() -> Call[m.AlertList]:
    """For admins: list the alerts that are pending or firing, oldest first."""
    return get(path_of("alerts"), m.AlertList)


def alert_history(
    *, rule: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[m.AlertHistory]:
    """For admins: list alerts that have resolved, latest first, page by page."""
    return get(path_of("alerts", "history"), m.AlertHistory, rule=rule, limit=limit, cursor=cursor)


def list_alert_rules() -> Call[m.AlertRuleList]:
    """For admins: list the alert rules: the tenant's own, and the defaults."""
    return get(path_of("alert-rules"), m.AlertRuleList)


def get_alert_rule(name: str) -> Call[m.AlertRule]:
    """For admins: return an alert rule."""
    return get(path_of("alert-rules", name), m.AlertRule)


def put_alert_rule(name: str, rule: Definition) -> Call[m.AlertRule]:
    """For admins: add an alert rule, or replace the one of that name. Fields that are left out have defaults."""
    return send("PUT", path_of("alert-rules", name), m.AlertRule, rule, may_repeat=True)


def remove_alert_rule(name: str) -> Call[m.AlertRuleMessage]:
    """For admins: remove an alert rule. If it replaced a default, the default holds again."""
    return send("DELETE", path_of("alert-rules", name), m.AlertRuleMessage)


def test_alert_rule(name: str) -> Call[m.AlertRuleTest]:
    """For admins: send a test notice to the channels of a rule."""
    return send("POST", path_of("alert-rules", name, "test"), m.AlertRuleTest)


def list_silences() -> Call[m.SilenceList]:
    """For admins: list the silences that have not ended."""
    return get(path_of("silences"), m.SilenceList)


def add_silence(seconds: float, *, rule: str = "", subject: str = "", reason: str = "") -> Call[m.Silence]:
    """For admins: hold back notices of these alerts (of all, if neither is named) from now on."""
    wanted = {"seconds": seconds, "rule": rule, "subject": subject, "reason": reason}
    return send("POST", path_of("silences"), m.Silence, wanted)


def remove_silence(silence_id: str) -> Call[m.SilenceMessage]:
    """For admins: end a silence."""
    return send("DELETE", path_of("silences", silence_id), m.SilenceMessage)


def list_alert_channels() -> Call[m.ChannelList]:
    """For admins: list where notices of alerts are sent, without the tokens."""
    return get(path_of("alert-channels"), m.ChannelList)


def put_alert_channel(name: str, url: str, *, kind: str | None = None) -> Call[m.AlertChannel]:
    """For admins: add an alert channel, or change its URL, which can't be read back.

    `kind`: webhook or apprise; by default webhook for http:// and https://, otherwise apprise.
    """
    body = {"url": url, "kind": kind}
    return send("PUT", path_of("alert-channels", name), m.AlertChannel, body, may_repeat=True)


def remove_alert_channel(name: str) -> Call[m.ChannelMessage]:
    """For admins: remove an alert channel. Notices to it fail from then on."""
    return send("DELETE", path_of("alert-channels", name), m.ChannelMessage)


def test_alert_channel(name: str) -> Call[m.ChannelTest]:
    """For admins: send a test notice. The execution of the job that is returned tells whether it arrived."""
    return send("POST", path_of("alert-channels", name, "test"), m.ChannelTest)
