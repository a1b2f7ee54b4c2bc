package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Env is where ${NAME} is looked up. The zero Env knows no variables.
type Env struct {
	// Lookup is the environment, such as os.LookupEnv.
	Lookup func(name string) (value string, set bool)
	// File holds the variables of a dotenv file, see [dotenv.Read]. The
	// environment wins.
	File map[string]string

	files secretFiles // nil: nobody asks which files were read
}

// errNotSet: a variable is set nowhere.
var errNotSet = errors.New("is not set")

// get returns the value of name: the variable, else the content of the file
// that name_FILE names, else that of the file name in $CREDENTIALS_DIRECTORY,
// without its last newline. The dotenv file is asked only where the
// environment has none of them. errNotSet: there is none; two at once are an
// error. No error holds a value.
func (e Env) get(name string) (string, error) {
	environment := e.Lookup
	if environment == nil {
		environment = func(string) (string, bool) { return "", false }
	}
	dotenv := func(name string) (string, bool) { v, ok := e.File[name]; return v, ok }

	value, err := e.lookup(environment, name)
	if !errors.Is(err, errNotSet) {
		return value, err
	}
	return e.lookup(dotenv, name)
}

func (e Env) lookup(variable func(string) (string, bool), name string) (string, error) {
	value, isSet := variable(name)
	var found []string
	if isSet {
		found = append(found, name)
	}
	file, isFile := variable(name + "_FILE")
	if isFile {
		found = append(found, name+"_FILE")
	}
	if dir, ok := variable("CREDENTIALS_DIRECTORY"); ok && dir != "" {
		credential := filepath.Join(dir, name)
		if _, err := os.Stat(credential); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, "the file "+name+" in $CREDENTIALS_DIRECTORY")
			file = credential
		}
	}
	switch {
	case len(found) > 1:
		return "", fmt.Errorf("%s are both set: unset one of them", strings.Join(found, " and "))
	case len(found) == 0:
		return "", errNotSet
	case isSet:
		return value, nil
	}
	content, err := e.readSecret(file)
	if err != nil {
		var pathError *fs.PathError
		if errors.As(err, &pathError) {
			err = pathError.Err // the path may itself be something that nobody should read
		}
		return "", fmt.Errorf("%s: the file cannot be read: %w", found[0], err)
	}
	text := strings.TrimSuffix(string(content), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}
