package sqlstore

// What the tables hold beside the fence's own reads and writes. Each of these may be
// used concurrently and copied; none is worth keeping.
type (
	// Setup is what comes before the first row: tables, the installation's secret, grants.
	Setup struct{ s *Store }
	// Pool is the store's connections, as far as they may lead to another server.
	Pool struct{ s *Store }
	// Reports read rows for people: lists, searches, counts. They write nothing.
	Reports struct{ s *Store }
	// History reads the notes. They are appended by [Store.Note] and by each write of a row.
	History struct{ s *Store }
	// Quarantine keeps messages that cannot be decoded, byte for byte.
	Quarantine struct{ s *Store }
	// Processes are the programs that say of themselves that they run.
	Processes struct{ s *Store }
	// Meta is a few named values of the installation.
	Meta struct{ s *Store }
)

// Setup is what comes before the first row.
func (s *Store) Setup() Setup { return Setup{s} }

// Pool is the store's connections.
func (s *Store) Pool() Pool { return Pool{s} }

// Reports reads rows for people.
func (s *Store) Reports() Reports { return Reports{s} }

// History reads the notes.
func (s *Store) History() History { return History{s} }

// Quarantine keeps messages that cannot be decoded.
func (s *Store) Quarantine() Quarantine { return Quarantine{s} }

// Processes are the programs that say that they run.
func (s *Store) Processes() Processes { return Processes{s} }

// Meta is the installation's named values.
func (s *Store) Meta() Meta { return Meta{s} }
