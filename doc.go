// Package zabor is a fence around side effects such as card charges: each
// happens at most once per (order, step), although whatever asks for it asks at
// least once.
//
// The fence is a row with a unique key, committed before the call. A second
// request finds the row and does not call. Where the outcome of a call is not
// known, the row is in doubt until a look-up at the provider or a person has
// decided; it is never called again on a guess.
//
// # A call
//
// A program makes a [Fence] of a [Store] (package zabor/sqlstore: MySQL, MariaDB,
// PostgreSQL, SQLite, by an address or over the program's own pool) and of the
// installation's secret, which the store keeps:
//
//	store, err := sqlstore.New(db, "postgres") // or sqlstore.Open(address)
//	err = store.Migrate(ctx)                   // or its files, by your own tool
//	err = store.Check(ctx)                     // at each start: refuse to run on a database that may lose rows
//	secret, err := store.Secret(ctx)
//	fence := &zabor.Fence{Store: store, Secret: secret, Log: slog.Default(), Alert: page}
//
// An [Effect] names the side effect and renders its request; [Fence.Do] makes it:
//
//	row, err := fence.Do(ctx, effect, call)
//	switch {
//	case err == nil:       // settled, pending or declined, now or earlier: ack
//	case zabor.Park(err):  // a person must look: to the failure transport, then ack
//	default:               // do not ack: it comes back later
//	}
//
// The [Call] sends the request once and says what the answer proves. Take
// provider.Provider.Call (package zabor/provider) for anything spoken over HTTP:
// net/http by itself sends some POSTs twice. A call of your own returns the zero
// [Outcome] whenever it does not know: that is doubt, and doubt is safe.
//
// # Doubt
//
// Run one [Resolver] in the background, in every process that calls: it asks the
// provider, sends the same request under the same key where the provider keeps
// keys, and holds for a person what neither decides. [Fence.Decide] is that
// person's word. With a [Journal], call [Fence.ReplayJournal] before anything is
// taken.
//
// # In the caller's transaction
//
// [Fence.CaptureTx] commits the row together with the caller's own, and the call
// follows the commit. A transaction that is rolled back calls nothing.
//
// # What is watched
//
// See [Observer]. Packages zabor/metrics and zabor/tracing wrap the store, the call and
// the look-up. The package has no variables: a program may have many fences.
//
// # Tests
//
// sqlstore.OpenMemory is a store in memory that does all that the others do. Package
// zabor/zabortest has the suite of any other Store. Fence.Now and Resolver.Now are the
// clock of tests.
package zabor
