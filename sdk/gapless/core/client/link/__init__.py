"""What every part of a client stands on: its link to a broker, whichever that is now.

`outbox` sends, `registry` has what lives on through all sessions, `requests` are repeated until they are answered.
`addresses` chooses what is dialled, after a `backoff`; `liveness` sends and expects heartbeats. `effects` are what the
core asks of its shell, `errors` what it tells the application.
"""
