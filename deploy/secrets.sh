#!/bin/sh
# Makes the passwords of this installation, once, and writes for each reader a folder with what it may know.
# They never leave the volume: no environment, no image and no process list shows them.
set -eu
umask 022
cd /secrets

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

write() { # FILE TEXT: whole or not at all
    mkdir -p "${1%/*}"
    printf '%s' "$2" >"$1.partial"
    mv "$1.partial" "$1"
}

secret() { # NAME: made on the first call
    [ -s "made/$1" ] || write "made/$1" "$(random)"
    cat "made/$1"
}

# A container sees the folder that is mounted into it; made/ is mounted nowhere.
superuser=$(secret superuser) owner=$(secret owner) app=$(secret app) redis=$(secret redis)
write postgres/superuser "$superuser"
write postgres/owner "$owner"
write postgres/app "$app"
write redis/password "$redis"
write redis/redis.conf "requirepass $redis"
write migrate/MATHRAG_OWNER_URL "postgresql+asyncpg://mathrag_owner:$owner@postgres:5432/mathrag"
write services/MATHRAG_DATABASE_URL "postgresql+asyncpg://mathrag_app:$app@postgres:5432/mathrag"
write services/MATHRAG_REDIS_URL "redis://:$redis@redis:6379/0"
write services/MATHRAG_SERVICE_KEY "$(secret service)"
write grafana/password "$(secret grafana)"
write elasticsearch/password "$(secret elasticsearch)"
write services/MATHRAG_RETRIEVAL "{\"elasticsearch\": {\"url\": \"http://elastic:$(secret elasticsearch)@elasticsearch:9200\"}}"
# Elasticsearch refuses a password file that others can read; 1000 is its user.
chown 1000 elasticsearch/password
chmod 0400 elasticsearch/password
