#!/usr/bin/env bash
# Makes a release in dist/: for linux on amd64 and arm64 a tarball and a .deb, and SHA256SUMS. Two runs on one commit give the
# same bytes, wherever the tree lies: times are the commit's, paths are trimmed, archives are sorted and belong to root.
#
#   scripts/dist.sh                                  # the version is the commit's tag, else that of the source and the commit
#   scripts/dist.sh pack ARCH PROGRAM MANUAL OUT     # of what is built already: one architecture, without SHA256SUMS
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC
GO=${GO:-go}

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# A tag v1.2.3 is release 1.2.3; anything else is one that is still to come.
version() {
	local tag
	if tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null); then
		echo "${tag#v}"
	else
		echo "$(sed -n 's/^var version = "\(.*\)"$/\1/p' cmd/zabor/version.go)+g$(git rev-parse --short=12 HEAD)"
	fi
}

# archive FOLDER NAME: FOLDER/NAME as a tarball, on standard output.
archive() {
	tar -C "$1" --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c "$2" | gzip -"${COMPRESSION:-9}"n
}

# manual PROGRAM FOLDER: man pages and completions, made by a program that runs here.
manual() {
	local program=$1 folder=$2 page roff
	roff=$(mktemp)
	$GO build -modfile=tools/go.mod -o "$roff" github.com/cpuguy83/go-md2man/v2
	"$program" manual --date "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)" "$folder"
	for page in "$folder"/*.md; do
		"$roff" -in "$page" -out "${page%.md}"
		rm "$page"
	done
	rm "$roff"
	"$program" completion bash >"$folder/zabor.bash"
	"$program" completion zsh >"$folder/_zabor"
	"$program" completion fish >"$folder/zabor.fish"
}

# documents FOLDER: what is read, with its links between each other.
documents() {
	cp README.md CHANGELOG.md LICENSE zabor.example.yaml "$1"
	cp -r docs contrib "$1"
	rm -rf "$1/contrib/debian" "$1"/docs/model/pan*
	chmod -R u=rwX,go=rX "$1"
}

pack() {
	local arch=$1 program=$2 manual=$3 out=$4 version name work root deb page
	version=${VERSION:-$(version)} name=zabor_${version}_linux_$arch
	work=$(mktemp -d)
	trap 'rm -rf "$work"' RETURN
	mkdir -p "$out"

	root=$work/$name
	mkdir -p "$root/man" "$root/completions"
	install -m 755 "$program" "$root/zabor"
	install -m 644 "$manual"/*.[15] "$root/man"
	install -m 644 "$manual"/{zabor.bash,_zabor,zabor.fish} "$root/completions"
	documents "$root"
	archive "$work" "$name" >"$out/$name.tar.gz"

	root=$work/deb
	deb=${version/-/\~} # 1.0~rc1 is before 1.0
	mkdir -p "$root"/{DEBIAN,usr/bin,usr/lib/systemd/system,usr/share/man/man1,usr/share/man/man5,usr/share/doc/zabor/examples} \
		"$root"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
	install -d -m 750 "$root/etc/zabor"
	install -m 640 contrib/debian/zabor.env "$root/etc/zabor"
	install -m 755 "$program" "$root/usr/bin/zabor"
	install -m 644 contrib/systemd/zabor.service "$root/usr/lib/systemd/system"
	for page in "$manual"/*.[15]; do
		gzip -9nc "$page" >"$root/usr/share/man/man${page##*.}/${page##*/}.gz"
	done
	install -m 644 "$manual/zabor.bash" "$root/usr/share/bash-completion/completions/zabor"
	install -m 644 "$manual/_zabor" "$root/usr/share/zsh/vendor-completions/_zabor"
	install -m 644 "$manual/zabor.fish" "$root/usr/share/fish/vendor_completions.d/zabor.fish"
	documents "$root/usr/share/doc/zabor"
	mv "$root/usr/share/doc/zabor/zabor.example.yaml" "$root/usr/share/doc/zabor/examples/zabor.yaml"
	rm "$root/usr/share/doc/zabor/LICENSE"
	install -m 644 contrib/debian/copyright "$root/usr/share/doc/zabor"
	install -m 644 contrib/debian/conffiles "$root/DEBIAN"
	install -m 755 contrib/debian/{postinst,prerm,postrm} "$root/DEBIAN"
	(cd "$root" && find etc usr -type f ! -path 'etc/*' -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
	sed "s/@VERSION@/$deb/; s/@ARCH@/$arch/; s/@SIZE@/$(du -sk --apparent-size "$root" | cut -f 1)/" contrib/debian/control >"$root/DEBIAN/control"
	find "$root" -newermt "@$SOURCE_DATE_EPOCH" -print0 | xargs -0 touch -hd "@$SOURCE_DATE_EPOCH"
	dpkg-deb --root-owner-group -Zgzip -z"${COMPRESSION:-9}" --build "$root" "$out/zabor_${deb}_$arch.deb" >/dev/null
}

all() {
	local out=dist work arch version
	[[ -z $(git status --porcelain) ]] || echo 'dist: the tree has changes that are in no commit: "zabor version" will say dirty' >&2
	version=$(version)
	rm -rf "$out"
	work=$(mktemp -d)
	trap "rm -rf '$work'" EXIT
	for arch in amd64 arm64; do
		CGO_ENABLED=0 GOOS=linux GOARCH=$arch $GO build -trimpath -ldflags "-s -w -X main.version=$version" -o "$work/$arch" ./cmd/zabor
	done
	manual "$work/$($GO env GOHOSTARCH)" "$work/manual"
	for arch in amd64 arm64; do
		VERSION=$version pack "$arch" "$work/$arch" "$work/manual" "$out"
	done
	(cd "$out" && sha256sum -- *.tar.gz *.deb | tee SHA256SUMS)
}

case ${1-} in
'') all ;;
pack | manual) "$@" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
