-- Make the schema that everything lives in (its name stands before the dot).
DO $$ BEGIN EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', split_part('fleetcron.', '.', 1)); END $$
