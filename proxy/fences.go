package proxy

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"zabor"
)

const fencesPath = "/fences/"

// Unfetched is the kind of a note about an answer that nobody was there to take.
const Unfetched = "unfetched"

const noteTime = 5 * time.Second

// storedJSON is an answer as it was kept. Body is a text; Base64 in its place
// where it is none.
type storedJSON struct {
	Status int                 `json:"status"`
	Header []zabor.HeaderField `json:"header"`
	Body   string              `json:"body"`
	Base64 string              `json:"base64,omitempty"`
}

// serveFence answers GET /fences/{order}/{step}?scope= with the row, and with the
// answer that is stored.
func (p *Proxy) serveFence(w http.ResponseWriter, r *http.Request, rest string) error {
	if r.Method != http.MethodGet {
		return refuse(400, "%s%s: only GET", fencesPath, visible(rest))
	}
	path, query, _ := strings.Cut(rest, "?")
	order, stepName, ok := strings.Cut(path, "/")
	values, err := url.ParseQuery(query)
	if !ok || strings.Contains(stepName, "/") || err != nil || len(values["scope"]) > 1 || len(values) > 1 || len(values) == 1 && !values.Has("scope") {
		return refuse(400, "write %s{order}/{step}?scope={scope}, each percent-encoded", fencesPath)
	}
	n := name{scope: values.Get("scope")}
	if n.order, err = decode("the order", order); err != nil {
		return err
	}
	if n.step, err = decode("the step", stepName); err != nil {
		return err
	}
	k, err := n.key(p.o.Scope)
	if err != nil {
		return err
	}
	fence := p.fence.Load()
	if fence == nil {
		return errors.New("the fence's database was not there so far")
	}
	row, err := fence.Store.Load(r.Context(), k)
	if errors.Is(err, zabor.ErrNoRow) {
		p.refuse(w, problem{status: 404, kind: "no-row", key: k, text: k.String() + " has no row: nothing was ever called for it through this fence"})
		return nil
	}
	if err != nil {
		return err
	}
	document := map[string]any{}
	shown, err := json.Marshal(p.o.Show(row))
	if err == nil {
		err = json.Unmarshal(shown, &document)
	}
	if err != nil {
		return err
	}
	document["answer"] = nil
	if a := storedReply(row.Answer); a != nil {
		stored := storedJSON{Status: a.Status, Header: row.Answer.Header, Body: string(a.Body)}
		if !utf8.Valid(a.Body) {
			stored.Body, stored.Base64 = "", base64.StdEncoding.EncodeToString(a.Body)
		}
		document["answer"] = stored
	}
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	stateHeaders(w.Header(), row)
	p.write(w, http.StatusOK, body)
	return nil
}
