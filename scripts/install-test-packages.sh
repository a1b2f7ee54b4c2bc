#!/bin/sh
# Installs, on Debian, what the tests run against: servers, PHP with the libraries whose messages zabor reads, a C compiler
# for the race detector, and the model checker. Does nothing where all of it is there. It needs root or sudo, starts no
# service and changes no configuration; the tests start servers of their own, on free ports.
set -eu

packages='
	gcc libc6-dev
	redis-server mariadb-server galera-4 postgresql
	php-cli php-redis php-mysql php-sqlite3 php-pgsql
	php-illuminate-queue php-illuminate-redis php-illuminate-bus php-illuminate-events php-illuminate-console php-illuminate-database
	php-symfony-redis-messenger php-symfony-doctrine-messenger php-symfony-event-dispatcher php-symfony-console php-doctrine-dbal
	chromium
	php-curl php-guzzlehttp-guzzle php-illuminate-http php-symfony-http-client
	nodejs
	mandoc
	spin'

say() { echo "install-test-packages: $*" >&2; }

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
	say 'not a Debian system: install these by hand, or their like:' $packages
	exit 0
fi

missing=
for package in $packages; do
	# A compiler or server that came another way would be as good, but only the package is known to be complete.
	case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
	*' installed') ;;
	*) missing="$missing $package" ;;
	esac
done
[ -n "$missing" ] || exit 0

root=
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || {
		say "missing:$missing"
		say "as root: apt-get install --no-install-recommends$missing"
		exit 1
	}
	root=sudo
fi

# Debian starts a server when it is installed, unless this file says no. One that is there already stays as it is.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap '$root rm -f $policy' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' | $root tee $policy >/dev/null
	$root chmod 755 $policy
fi

say "installing$missing"
log=$(mktemp)
apt() { $root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1; }
if ! { apt update && apt install --no-install-recommends $missing; }; then
	tail -n 30 "$log" >&2
	say "could not install; the whole output is in $log"
	exit 1
fi
rm -f "$log"
