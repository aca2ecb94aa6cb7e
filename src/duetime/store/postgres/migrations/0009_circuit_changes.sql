-- Nodes read what has changed of the circuits, not all of them. One that is closed stays for a while, without failures,
-- so that they learn of it.
ALTER TABLE circuits ADD COLUMN changed_in xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX circuits_changed ON circuits (changed_in);
CREATE INDEX circuits_latest ON circuits ((opened_at IS NULL), touched_at DESC, id) WHERE failures > 0;
CREATE INDEX circuits_touched ON circuits (touched_at);
DROP INDEX circuits_of;
CREATE INDEX circuits_of ON circuits (tenant, (opened_at IS NULL), touched_at DESC, id);
