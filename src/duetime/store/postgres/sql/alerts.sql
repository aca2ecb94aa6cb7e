-- The owner of the alerts.

-- name: get_alerts_epoch
-- Differs from the SQLite version in that it locks the row until the commit: a node that takes the alerts waits.
SELECT epoch FROM alert_owner FOR SHARE;
