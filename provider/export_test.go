package provider

import "time"

// BeforeWrite has f called between the reading of the clock and the first byte.
func (p *Provider) BeforeWrite(f func()) { p.beforeWrite = f }

// PauseBetweenPages is the first pause before a page of a list is asked for again.
func (p *Provider) PauseBetweenPages(d time.Duration) { p.listPause = d }
