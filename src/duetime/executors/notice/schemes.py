"""The services that an alert channel may use: the schemes of apprise's plugins that only send HTTP, and mail.

The other plugins open sockets of their own (mqtt, irc, xmpp, syslog, smpp), run programs or draw on the desktop of the
machine that the node runs on. A test compares this list with the installed apprise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

from duetime.domain.channels import Kind, scheme_of
from duetime.executors.guard import DEFAULT_PORTS, Ports

NATIVE = ("https", "http")  # a URL as the service itself shows it; apprise finds the service by its host
MAIL = frozenset({"mailto", "mailtos"})
MAIL_PORTS: Ports = (*DEFAULT_PORTS, (25, 25), (465, 465), (587, 587))

WEB = frozenset({
    "46elks", "apprise", "apprises", "atalk", "azure", "bark", "barks", "betterstack", "bluesky", "brevo", "bsky",
    "bulksms", "bulkvs", "burstsms", "chanify", "clickatell", "clicksend", "cliq", "cm", "d7sms", "dapnet", "dingtalk",
    "discord", "dot", "eight00com", "elks", "emby", "embys", "enigma2", "enigma2s", "evolution", "evolutions", "exotel",
    "fcm", "feishu", "firehydrant", "flock", "flowtriq", "flowtriqs", "fluxer", "fluxers", "form", "forms",
    "freemobile", "gchat", "github", "goalert", "goalerts", "gorush", "gorushs", "gotify", "gotifys", "groundmail",
    "groupme", "guilded", "gupshup", "hassio", "hassios", "httpsms", "humhub", "humhubs", "ifttt", "ilert",
    "incidentio", "infobip", "jellyfin", "jellyfins", "jira", "join", "json", "jsons", "kakao", "kakaotalk", "kaleyra",
    "kavenegar", "klr", "kodi", "kodis", "kook", "kudosity", "kumulos", "lametric", "lametrics", "lark", "lauther",
    "lfg", "line", "mailersend", "mailgun", "mastodon", "mastodons", "matrix", "matrixs", "misskey", "misskeys",
    "mmost", "mmosts", "mobilemessage", "mobilemsg", "msg91", "msgbird", "ncloud", "nclouds", "nctalk", "nctalks",
    "nexmo", "notica", "noticas", "notifiarr", "notifico", "notificos", "notifyre", "ntfy", "ntfys", "o365", "octopush",
    "onebot", "onebots", "onesignal", "opsgenie", "pagerduty", "pagertree", "parsep", "parseps", "pbul", "pinglet",
    "pinglets", "pingram", "pjet", "pjets", "plivo", "postmark", "pover", "prowl", "psafer", "psafers", "push",
    "pushdeer", "pushdeers", "pushed", "pushme", "pushplus", "pushward", "pushy", "qq", "reddit", "resend", "revolt",
    "ringc", "rocket", "rockets", "ryver", "schan", "sendgrid", "sendpulse", "serwersms", "ses", "session", "sessions",
    "seven", "sfr", "signal", "signalgrid", "signals", "signl4", "simplepush", "sinch", "slack", "smsc", "smseagle",
    "smseagles", "smsmanager", "smsmgr", "smstunnel", "smtp2go", "sns", "sogs", "sparkpost", "spike", "splunk",
    "spugpush", "spush", "squadcast", "stackfield", "strmlabs", "synology", "synologys", "telesign", "telnyx", "tgram",
    "threema", "toot", "toots", "trigv", "trigvs", "tweet", "twilio", "twist", "twitter", "vapid", "viber", "victorops",
    "voipms", "vonage", "webex", "wechat", "wecom", "wecombot", "whapi", "whatsapp", "workflow", "workflows", "wpush",
    "wxpusher", "wxteams", "x", "xbmc", "xbmcs", "xmatters", "xml", "xmls", "youlmk", "zalo", "zcliq", "zohocliq",
    "zoom", "zulip",
})  # fmt: skip
ALLOWED = WEB | MAIL


@cache
def has_apprise() -> bool:
    return find_spec("apprise") is not None


def refusal_of(url: str) -> str | None:
    """Returns why a channel can't have this URL of apprise; None if it can, as far as its scheme shows."""
    scheme = scheme_of(url)
    if scheme not in ALLOWED and scheme not in NATIVE:
        return (
            f"{scheme}:// is not a service that alerts can be sent to here: only those that apprise reaches over HTTP, "
            "and mail (mailtos://); see docs/how-to/alert-channels.md"
        )
    if not has_apprise():
        return "this server has no apprise; its operator installs it with: pip install 'duetime[alerts]'"
    return None


def ports_of(url: str) -> Ports:
    return MAIL_PORTS if scheme_of(url) in MAIL else DEFAULT_PORTS


def channel_refusal(target_refusal: Callable[[str], str | None], kind: Kind, url: str) -> str | None:
    """Returns why no channel of this kind and URL may be added; None if it may. `target_refusal`: for webhooks."""
    return target_refusal(url) if kind is Kind.WEBHOOK else refusal_of(url)
