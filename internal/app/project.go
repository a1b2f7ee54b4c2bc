// Package app reads Laravel and Symfony applications without running them: what
// their configuration comes to, where each value of it was decided, and what
// their classes are and call.
package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"zabor/internal/dotenv"
)

// Framework is what an application is built with.
type Framework string

// The frameworks. None: a folder of configuration files of the host.
const (
	Laravel Framework = "Laravel"
	Symfony Framework = "Symfony"
	None    Framework = ""
)

// Version is a version of a framework; the zero Version is not known.
type Version struct {
	Major, Minor int
	From         Origin
}

// Before reports whether v is known and older than major.minor.
func (v Version) Before(major, minor int) bool {
	return v.Major > 0 && (v.Major < major || v.Major == major && v.Minor < minor)
}

// Notice is something that could not be read: rules saw only the rest.
type Notice struct {
	File string
	Line int // 0: the whole file
	What string
	Fix  string
}

// Options say how an application is read.
type Options struct {
	// Lookup is the environment of the application's processes, such as
	// os.LookupEnv; nil is an empty one. It wins over dotenv files, as in PHP.
	Lookup func(name string) (string, bool)
	// Environment is the name of the environment to read for, such as prod.
	// Empty: APP_ENV, unless that is one for development.
	Environment string
	// DebugConfig is a file with the output of Symfony's
	// "debug:config framework --format=json"; it is read instead of the YAML.
	DebugConfig string
}

// Project is an application as it was read. It is not changed after Open.
type Project struct {
	Root        string // as it was given
	Framework   Framework
	Version     Version
	Environment *Value // its name, such as production
	Config      *Value // Laravel: by file, then as in it; Symfony: by extension (framework, doctrine)
	Cached      bool   // Laravel: Config is bootstrap/cache/config.php, and .env is not read
	Classes     []*Class
	Workers     []Worker
	Notices     []Notice

	byName  map[string]*Class
	require map[string]string // packages of composer.json, and which version each wants
	env     *environment
	written *Value            // Symfony: Config before placeholders are resolved
	params  map[string]*Value // Symfony: parameters of services.yaml
	files   map[string][]byte // PHP, YAML and dotenv files that were read, for excerpts
}

// largest is the largest source file that is read, in bytes.
const largest = 2 << 20

// Open reads the application at root, a folder, or one file of a host's
// configuration. The error is that of a folder that cannot be read; what is
// wrong within it is a Notice.
func Open(root string, o Options) (*Project, error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	p := &Project{Root: root, byName: map[string]*Class{}, files: map[string][]byte{}, params: map[string]*Value{}}
	p.env = &environment{lookup: o.Lookup, values: map[string]variable{}}
	if !info.IsDir() {
		p.Root = filepath.Dir(root)
		p.workersIn(filepath.Base(root))
		return p, nil
	}
	p.detect()
	if err := p.walk(); err != nil {
		return nil, err
	}
	switch p.Framework {
	case Laravel:
		p.readLaravel(o)
	case Symfony:
		p.readSymfony(o)
	}
	for _, c := range p.Classes {
		p.byName[strings.ToLower(c.Name)] = c
	}
	return p, nil
}

// Class is the application's class of that full name; nil: it has none.
func (p *Project) Class(name string) *Class {
	return p.byName[strings.ToLower(strings.TrimPrefix(name, `\`))]
}

// Lineage is c, the traits that it uses, what it extends, and what it implements,
// over all classes of the application between and each once, as PHP looks methods
// up. A source in which classes extend each other in a circle ends too.
func (p *Project) Lineage(c *Class) []*Class {
	var list []*Class
	seen := map[*Class]bool{nil: true}
	var add func(c *Class)
	add = func(c *Class) {
		if seen[c] {
			return
		}
		seen[c] = true
		list = append(list, c)
		for _, name := range slices.Concat(c.Traits, []string{c.Extends}, c.Implements) {
			add(p.Class(name))
		}
	}
	add(c)
	return list
}

// Is reports whether c is, extends, implements or uses one of names, full names
// or short ones, over all classes of the application between.
func (p *Project) Is(c *Class, names ...string) bool {
	for _, one := range p.Lineage(c) {
		for _, name := range slices.Concat([]string{one.Name, one.Extends}, one.Implements, one.Traits) {
			if slices.Contains(names, name) || slices.Contains(names, Short(name)) {
				return true
			}
		}
	}
	return false
}

// Method is the method of c, of a trait that it uses or of a class that it extends;
// nil: there is none.
func (p *Project) Method(c *Class, name string) *Method {
	for _, one := range p.Lineage(c) {
		if m := one.Method(name); m != nil {
			return m
		}
	}
	return nil
}

// Property is the property of c or of a class that it extends or a trait that it
// uses; nil: there is none.
func (p *Project) Property(c *Class, name string) *Property {
	for _, one := range p.Lineage(c) {
		if found := one.Property(name); found != nil {
			return found
		}
	}
	return nil
}

// Excerpt is line n of a file that was read, without secrets; "" where there is
// none.
func (p *Project) Excerpt(file string, n int) string {
	content, ok := p.files[file]
	if !ok {
		return ""
	}
	lines := bytes.Split(content, []byte("\n"))
	if n < 1 || n > len(lines) {
		return ""
	}
	return mask(file, strings.TrimRight(string(lines[n-1]), "\r"))
}

var (
	inAddress  = regexp.MustCompile(`(://)[^/@\s'"]*@`)
	authOption = regexp.MustCompile(`(auth(?:%5B\]|\[\])?=)[^&\s'"]+`)
	secretKey  = regexp.MustCompile(`\b((?:sk|rk|pk|whsec|test|live)_)[A-Za-z0-9_]{6,}`)
	secretName = regexp.MustCompile(`(?i)(KEY|SECRET|PASSWORD|TOKEN|PASS)$`)
	secretPair = regexp.MustCompile(`(?i)(['"]?(?:password|secret|token|api_?key|app_?key)['"]?\s*(?:=>|[:=])\s*)(['"])[^'"]*['"]`)
)

// mask takes out of a line what may be a secret.
func mask(file, line string) string {
	line = inAddress.ReplaceAllString(line, "${1}…@")
	line = authOption.ReplaceAllString(line, "${1}…")
	line = secretKey.ReplaceAllString(line, "${1}…")
	if strings.HasPrefix(filepath.Base(file), ".env") {
		if name, value, ok := strings.Cut(line, "="); ok && value != "" && secretName.MatchString(strings.TrimSpace(name)) {
			return name + "=…"
		}
		return line
	}
	return secretPair.ReplaceAllString(line, "${1}${2}…${2}")
}

// read is the content of a file of the project, kept for excerpts; nil: it is
// not there, or is no file to read.
func (p *Project) read(name string) []byte {
	if content, ok := p.files[name]; ok {
		return content
	}
	file := filepath.Join(p.Root, filepath.FromSlash(name))
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
		return nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no file but a device or a pipe")
	}
	var content []byte
	if err == nil {
		content, err = readUpTo(file, largest)
	}
	if err != nil {
		p.Notices = append(p.Notices, Notice{File: name, What: "cannot be read: " + plain(err)})
		return nil
	}
	p.files[name] = content
	return content
}

// readUpTo reads a file of at most so many bytes.
func readUpTo(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(content)) > most {
		return nil, fmt.Errorf("larger than %d MiB", most>>20)
	}
	return content, err
}

// plain is err without the path, which the notice names already.
func plain(err error) string {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err.Error()
	}
	return err.Error()
}

// detect finds the framework and its version.
func (p *Project) detect() {
	composer := struct {
		Require map[string]string `json:"require"`
	}{}
	if content := p.read("composer.json"); content != nil {
		if err := json.Unmarshal(content, &composer); err != nil {
			p.Notices = append(p.Notices, Notice{File: "composer.json", What: "not JSON: " + err.Error()})
		}
	}
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(p.Root, name))
		return err == nil
	}
	p.require = composer.Require
	has := func(name string) bool { _, ok := composer.Require[name]; return ok }
	switch {
	case has("laravel/framework"), has("illuminate/queue"), exists("artisan"):
		p.Framework = Laravel
		p.Version = p.version(composer.Require, "laravel/framework", "illuminate/queue")
	case has("symfony/framework-bundle"), has("symfony/messenger"), exists("bin/console"), exists("symfony.lock"):
		p.Framework = Symfony
		p.Version = p.version(composer.Require, "symfony/messenger", "symfony/framework-bundle")
	case exists("config/queue.php"), exists("bootstrap/cache/config.php"):
		p.Framework = Laravel
	case exists("config/packages"):
		p.Framework = Symfony
	}
}

var firstNumber = regexp.MustCompile(`(\d+)(?:\.(\d+))?`)

// version is that of the first of packages in composer.lock, else what
// composer.json asks for.
func (p *Project) version(require map[string]string, packages ...string) Version {
	var lock struct {
		Packages []struct{ Name, Version string } `json:"packages"`
	}
	content := p.read("composer.lock")
	if content != nil {
		if err := json.Unmarshal(content, &lock); err != nil {
			p.Notices = append(p.Notices, Notice{File: "composer.lock", What: "not JSON: " + err.Error()})
		}
	}
	for _, name := range packages {
		for _, one := range lock.Packages {
			if one.Name == name {
				return versionOf(one.Version, Origin{File: "composer.lock", Line: lineOf(content, `"name": "`+name+`"`)})
			}
		}
	}
	for _, name := range packages {
		if constraint, ok := require[name]; ok {
			return versionOf(constraint, Origin{File: "composer.json", Line: lineOf(p.files["composer.json"], `"`+name+`"`)})
		}
	}
	return Version{}
}

func versionOf(text string, from Origin) Version {
	m := firstNumber.FindStringSubmatch(text)
	if m == nil {
		return Version{}
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return Version{Major: major, Minor: minor, From: from}
}

// lineOf is the line of the first occurrence of text; 0: there is none.
func lineOf(content []byte, text string) int {
	i := bytes.Index(content, []byte(text))
	if i < 0 {
		return 0
	}
	return 1 + bytes.Count(content[:i], []byte("\n"))
}

// skipped are folders without source of the application.
var skipped = []string{"vendor", "node_modules", ".git", "var", "storage", "tests", "test", "Tests", "public", "bootstrap", "database", "migrations", "translations", "assets"}

// walk reads all sources and the host's configuration in the project.
func (p *Project) walk() error {
	root := p.Root + string(filepath.Separator) + "." // what a symbolic link points to, as where releases are switched
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == root {
				return err
			}
			p.Notices = append(p.Notices, Notice{File: p.rel(path), What: "cannot be read: " + plain(err)})
			return nil
		}
		name := p.rel(path)
		if d.IsDir() {
			if path != root && (slices.Contains(skipped, d.Name()) || name == "config" && p.Framework != None) {
				return fs.SkipDir
			}
			return nil
		}
		switch {
		case !d.Type().IsRegular():
		case strings.HasSuffix(name, ".php"):
			if content := p.read(name); content != nil {
				s := parsePHP(name, content)
				p.Notices = append(p.Notices, s.broken...)
				p.Classes = append(p.Classes, s.classes()...)
			}
		default:
			p.workersIn(name)
		}
		return nil
	})
}

func (p *Project) rel(path string) string {
	name, err := filepath.Rel(p.Root, path)
	if err != nil {
		return filepath.ToSlash(path)
	}
	return filepath.ToSlash(name)
}

// environment is what environment variables are in the application's processes.
type environment struct {
	lookup func(string) (string, bool)
	values map[string]variable // of dotenv files
}

// variable is one of a dotenv file.
type variable struct {
	value string
	from  Origin
}

// get is the value of a variable and where it was set.
func (e *environment) get(name string) (string, Origin, bool) {
	if e.lookup != nil {
		if value, ok := e.lookup(name); ok {
			return value, Origin{Set: "the environment"}, true
		}
	}
	v, ok := e.values[name]
	return v.value, v.from, ok
}

// load adds a dotenv file, whose values win over those of earlier ones.
func (p *Project) load(name string) {
	content := p.read(name)
	if content == nil {
		return
	}
	if expanded(content) > largestEnv {
		p.Notices = append(p.Notices, Notice{File: name, What: fmt.Sprintf("not read: with its variables in each other's place it is larger than %d KiB", largestEnv>>10)})
		return
	}
	values, lines, err := dotenv.ReadLines(filepath.Join(p.Root, name), func(variable string) (string, bool) {
		value, _, ok := p.env.get(variable)
		return value, ok
	})
	if err != nil {
		p.Notices = append(p.Notices, Notice{File: name, What: strings.TrimPrefix(err.Error(), filepath.Join(p.Root, name)), Fix: "PHP does not read such a file either: mend the line"})
		return
	}
	for variableName, value := range values {
		p.env.values[variableName] = variable{value, Origin{File: name, Line: lines[variableName]}}
	}
}

// largestEnv is how large a dotenv file may be with its variables in place, in bytes.
const largestEnv = 256 << 10

var (
	envLine  = regexp.MustCompile(`^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=`)
	envNamed = regexp.MustCompile(`\$\{?([A-Za-z_]\w*)`)
)

// expanded is how large a dotenv file becomes, at most, when each variable that a
// value names stands in its place. It stops where that is too much.
func expanded(content []byte) (size int) {
	lengths := map[string]int{}
	for line := range bytes.Lines(content) {
		n := len(line)
		for _, named := range envNamed.FindAllSubmatch(line, -1) {
			n += lengths[string(named[1])]
		}
		if m := envLine.FindSubmatch(line); m != nil {
			lengths[string(m[1])] = n
		}
		if size += n; size > largestEnv {
			break
		}
	}
	return size
}

// Variable is an environment variable as the application's processes have it,
// with its origin; nil: it is set nowhere. It may be a secret.
func (p *Project) Variable(name string) *Value {
	value, from, ok := p.env.get(name)
	if !ok {
		return nil
	}
	from.Env = name
	return scalar(String, value, from)
}
