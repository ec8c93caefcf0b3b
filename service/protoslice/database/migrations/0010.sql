-- What people say of a store; its files never change.

ALTER TABLE stores ADD COLUMN description {text} NOT NULL DEFAULT '';
