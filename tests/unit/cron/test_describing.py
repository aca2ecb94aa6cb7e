"""Descriptions for users. A property test checks that no two meanings have the same description."""

from __future__ import annotations

import pytest

from duetime.domain.cron import describe, parse


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0 */5 * * * *", "every 5 minutes"),
        ("*/15 * * * * *", "every 15 seconds"),
        ("* * * * * *", "every second"),
        ("@hourly", "every hour"),
        ("0 */2 * * *", "every 2 hours"),
        ("5 * * * *", "at minute 5 of every hour"),
        ("30 * * * * *", "at second 30 of every minute"),
        ("*/7 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
        ("0 9 * * *", "at 09:00 every day"),
        ("15 0 9 * * *", "at 09:00:15 every day"),
        ("0 9 * * 1-5", "at 09:00, Monday to Friday"),
        ("0 9,17 * * 6,0", "at 09:00 and 17:00 on Saturday and Sunday"),
        ("0 9 * * FRI-MON", "at 09:00, Friday to Monday"),
        ("0 9-17 * * MON-FRI", "every hour from 09:00 to 17:00, Monday to Friday"),
        ("*/5 9-17 * * *", "every 5 minutes from 09:00 to 17:55"),
        ("*/20 */6 * * *", "every 20 minutes of hours 0, 6, 12 and 18"),
        ("*/10 0 * * * *", "every 10 seconds of minute 0 of every hour"),
        ("* * 5 * * *", "every second of every minute of hour 5"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 L-3 * *", "at 00:00 3 days before the last day of the month"),
        ("0 0 LW * *", "at 00:00 on the last weekday (Monday to Friday) of the month"),
        ("0 0 15W * *", "at 00:00 on the weekday (Monday to Friday) nearest day 15 of the month"),
        ("0 9 * * FRIL", "at 09:00 on the last Friday of the month"),
        ("0 9 * * FRI#3", "at 09:00 on the third Friday of the month"),
        ("30 9 1 * MON", "at 09:30 on day 1 of the month or on Monday"),
        ("0 0 */15 * MON", "at 00:00 on days 1, 16 and 31 of the month, but only on Monday"),
        ("0 0 1-31 * MON", "at 00:00 every day"),
        ("@yearly", "at 00:00 on day 1 of the month, in January"),
        ("0 9 * JAN,MAR-JUN *", "at 09:00 every day, in January and March to June"),
    ],
)
def test_expressions_are_described_in_words(text: str, words: str) -> None:
    assert describe(parse(text)) == words
