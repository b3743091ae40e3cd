# a transaction that was left open holds a lock, a client waits for it; a table with dead rows
pg_ctlcluster 15 main start
until_ "pg_isready -q"
cd /
sql() { runuser -u postgres -- psql -qXd "$@"; }
runuser -u postgres -- createdb shop
sql shop -c "create table orders (id int primary key, state text) with (autovacuum_enabled = off)" \
  -c "insert into orders select n, 'new' from generate_series(1, 5000) n" -c "update orders set state = 'paid'"
mkfifo /run/left-open
chmod 666 /run/left-open
runuser -u postgres -- psql -qXd shop </run/left-open >/dev/null &
exec 8>/run/left-open
echo "begin; update orders set state = 'sent' where id = 1;" >&8
idle="select count(*) from pg_stat_activity where state = 'idle in transaction'"
until_ "test \$(runuser -u postgres -- psql -XAtc \"$idle\") = 1"
sql shop -c "update orders set state = 'void' where id = 1" >/dev/null 2>&1 &
waits="select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
until_ "test \$(runuser -u postgres -- psql -XAtc \"$waits\") = 1"
dead="select n_dead_tup from pg_stat_user_tables where relname = 'orders'"
until_ "test \$(runuser -u postgres -- psql -XAtd shop -c \"$dead\") -ge 5000"
