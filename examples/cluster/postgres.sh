#!/bin/sh
# Run once by the image of PostgreSQL: Grafana may only read.
set -eu
psql -v ON_ERROR_STOP=1 -v password="$GRAFANA_POSTGRES_PASSWORD" -U guard guard <<'SQL'
CREATE ROLE grafana LOGIN PASSWORD :'password';
GRANT pg_read_all_data TO grafana;
SQL
