package connect

import (
	"fmt"

	"zabor/internal/config"
	"zabor/laravel"
	"zabor/messenger"
	"zabor/worker"
)

// Bus returns the bus of file: the targets of messages without a step.
func Bus(file *config.Config) worker.Bus {
	bus := worker.Bus{Forward: map[string]string{}}
	if file.Bus == nil {
		return bus
	}
	for pattern, queue := range file.Bus.Forward {
		bus.Forward[string(pattern)] = queue
	}
	for _, pattern := range file.Bus.Refuse {
		bus.Refuse = append(bus.Refuse, string(pattern))
	}
	return bus
}

// Decode returns the message in raw, the bytes of a message on s.
func (s Queue) Decode(raw []byte) *worker.Message {
	switch source := s.Source.(type) {
	case *laravel.Source:
		return source.Decode(raw)
	case *messenger.Source:
		return source.Decode(raw)
	}
	panic(fmt.Sprintf("a queue of type %T", s.Source)) // Queues makes no other
}
