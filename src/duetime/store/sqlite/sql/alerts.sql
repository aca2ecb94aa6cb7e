-- The owner of the alerts.

-- name: get_alerts_epoch
SELECT epoch FROM alert_owner;
