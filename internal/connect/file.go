package connect

import (
	"errors"
	"io/fs"
	"os"

	"zabor/internal/config"
	"zabor/internal/dotenv"
	"zabor/internal/exit"
)

// Load reads the configuration at name. Without a name it looks at the usual places.
// envFile is a dotenv file beside the environment; it may be empty.
func Load(name, envFile string) (*config.Config, error) {
	path, err := config.Find(name, os.LookupEnv)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.Usage(err, "name the file with -c FILE; zabor.example.yaml has every key")
	}
	if err != nil {
		return nil, exit.Usage(err, "")
	}
	env := config.Env{Lookup: os.LookupEnv}
	if envFile != "" {
		if env.File, err = dotenv.Read(envFile, os.LookupEnv); err != nil {
			return nil, exit.Usage(err, "")
		}
	}
	c, err := config.Load(path, env)
	if err != nil {
		if _, gone := os.Stat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil, exit.Usage(err, "\"zabor init APPLICATION > zabor.yaml\" makes one; -c FILE and ZABOR_CONFIG name another")
		}
		return nil, exit.Usage(err, "nothing was started; zabor.example.yaml has every key, and docs/providers.md says what a provider needs")
	}
	return c, nil
}
