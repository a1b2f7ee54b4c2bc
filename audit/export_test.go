package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, text string, columns *Columns) (out []string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for s, err := range (Export{Path: path, Columns: columns}).Successes() {
		if err != nil {
			return out, err
		}
		when := ""
		if !s.At.IsZero() {
			when = s.At.Format("2006-01-02T15:04:05")
		}
		_, line, _ := strings.Cut(s.Place, "export:")
		out = append(out, fmt.Sprintf("%s: %s alias=%s order=%s step=%s %d %s %s", line, s.Reference, s.Alias, s.Order, s.Step, s.Amount.Minor, s.Amount.Currency, when))
	}
	return out, nil
}

// Each export that zabor knows, as its provider writes it: what is a success, and
// what is passed over.
func TestExports(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"stripe payments",
			"\ufeffid,Created date (UTC),Amount,Amount Refunded,Currency,Captured,PaymentIntent ID,Status,order (metadata)\n" +
				"ch_1,2026-03-02 10:00,19.99,0.00,eur,true,pi_1,Paid,1001\n" +
				"ch_2,2026-03-02 10:01,19.99,0.00,eur,false,pi_2,Failed,1002\n" +
				"py_3,2026-03-02 10:02,\"1,234.50\",0.00,usd,true,,Refunded,\n",
			"2: pi_1 alias=ch_1 order=1001 step= 1999 EUR 2026-03-02T10:00:00\n4: py_3 alias=py_3 order= step= 123450 USD 2026-03-02T10:02:00"},
		{"stripe intents",
			`{"id":"pi_1","object":"payment_intent","amount":1999,"currency":"eur","status":"succeeded","created":1772445600,"latest_charge":"ch_1","metadata":{"order":"1001","step":"charge"}}` + "\n\n" +
				`{"id":"pi_2","object":"payment_intent","amount":1999,"currency":"eur","status":"requires_action","created":1772445600,"metadata":{}}`,
			"1: pi_1 alias=ch_1 order=1001 step=charge 1999 EUR 2026-03-02T10:00:00"},
		{"stripe charges",
			`{"id":"ch_1","object":"charge","payment_intent":"pi_1","amount":500,"currency":"jpy","status":"succeeded","created":1772445600,"metadata":{"order_id":7}}`,
			"1: pi_1 alias=ch_1 order=7 step= 500 JPY 2026-03-02T10:00:00"},
		{"paypal activity",
			`"Date","Time","TimeZone","Name","Type","Status","Currency","Gross","Fee","Net","Transaction ID","Invoice Number"` + "\n" +
				`"03/02/2026","10:00:00","GMT","A","Express Checkout Payment","Completed","EUR","19.99","-0.88","19.11","9AB","1001"` + "\n" +
				`"03/02/2026","10:00:00","GMT","A","Payment Refund","Completed","EUR","-19.99","0.88","-19.11","9AC","1001"` + "\n" +
				`"03/02/2026","10:00:00","GMT","A","Express Checkout Payment","Pending","EUR","19.99","0","19.99","9AD","1002"` + "\n",
			"2: 9AB alias= order=1001 step= 1999 EUR "},
		{"paypal captures",
			`{"id":"3C","amount":{"value":"19.99","currency_code":"EUR"},"status":"COMPLETED","custom_id":"1001","create_time":"2026-03-02T10:00:00Z"}`,
			"1: 3C alias= order=1001 step= 1999 EUR 2026-03-02T10:00:00"},
		{"yookassa register",
			"РЕЕСТР ПЛАТЕЖЕЙ В Магазин. № 7\nДата платежей: 02.03.2026\n\n" +
				"Идентификатор платежа;Сумма платежа;Валюта платежа;Сумма за вычетом комиссии;Время платежа;Описание\n" +
				"2d9f0a1b-000f-5000-8000-1d6e87c7fbde;1999.00;RUB;1900.00;02.03.2026 10:00:00;Заказ 1001\n\n" +
				"Сумма принятых платежей: 1999.00\nЧисло платежей: 1\n",
			"5: 2d9f0a1b-000f-5000-8000-1d6e87c7fbde alias= order= step= 199900 RUB 2026-03-02T10:00:00"},
		{"yookassa payments",
			`{"id":"2d9f","status":"succeeded","amount":{"value":"10.00","currency":"RUB"},"created_at":"2026-03-02T10:00:00.129Z","metadata":{"order":"1001"}}` + "\n" +
				`{"id":"2d90","status":"canceled","amount":{"value":"10.00","currency":"RUB"},"created_at":"2026-03-02T10:00:00.129Z","metadata":{}}`,
			"1: 2d9f alias= order=1001 step= 1000 RUB 2026-03-02T10:00:00"},
		{"adyen accounting",
			"Company Account,Merchant Account,Psp Reference,Merchant Reference,Payment Method,Booking Date,TimeZone,Main Currency,Main Amount,Record Type\n" +
				"C,M,8836,1001,visa,2026-03-02 09:59:58,UTC,EUR,19.99,Received\nC,M,8836,1001,visa,2026-03-02 10:00:00,UTC,EUR,19.99,Authorised\nC,M,8837,1002,visa,2026-03-02 10:00:00,UTC,EUR,19.99,Refused\n",
			"3: 8836 alias= order=1001 step= 1999 EUR 2026-03-02T10:00:00"},
		{"adyen received payments",
			"Company Account,Merchant Account,Psp Reference,Merchant Reference,Payment Method,Creation Date,TimeZone,Currency,Amount,Type,Acquirer Response\n" +
				"C,M,8836,1001,visa,2026-03-02 10:00:00,UTC,KWD,0.005,Payment,APPROVED\nC,M,8837,1002,visa,2026-03-02 10:00:00,UTC,KWD,1.000,Payment,DECLINED\n",
			"2: 8836 alias= order=1001 step= 5 KWD 2026-03-02T10:00:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := read(t, tt.text, nil)
			if err != nil || strings.Join(got, "\n") != tt.want {
				t.Errorf("%v\ngot  %s\nwant %s", err, strings.Join(got, "\n"), tt.want)
			}
		})
	}
}

// Columns of any file, and what is wrong with one. A line that cannot be read ends
// the audit: without it, it would say that all is well.
func TestColumns(t *testing.T) {
	long := strings.Repeat("1", 10_000)
	for _, tt := range []struct{ name, columns, text, want, err string }{
		{"mapped", "reference=Txn,amount=Sum,currency=Cur,order=Ref,status=State:ok|done", "Txn;Sum;Cur;Ref;State\nA;19,99;EUR;1;OK\nB;1;EUR;2;failed\n", "2: A alias= order=1 step= 1999 EUR ", ""},
		{"minor units", "reference=/txn,minor=/sum,currency=/cur,order=/o/id", `{"txn":"A","sum":1999,"cur":"EUR","o":{"id":7}}`, "1: A alias= order=7 step= 1999 EUR ", ""},
		{"tabs, no amount", "reference=Txn", "Txn\tX\nA\t1\n", "2: A alias= order= step= 0  ", ""},
		{"no such column", "reference=Nope", "Txn\nA\n", "", "no line of titles"},
		{"unknown titles", "", "a,b\n1,2\n", "", "--columns"},
		{"unknown objects", "", `{"a":1}`, "", "--columns"},
		{"empty file", "", "", "", "no line of titles"},
		{"not JSON", "reference=/id", "{\"id\":\"a\"}\n{\"id\":", "1: a alias= order= step= 0  ", "export:2"},
		{"reference missing", "reference=Txn,order=O", "Txn,O\n,1\n", "", "export:2: no reference"},
		{"amount unreadable", "reference=Txn,amount=A,currency=C", "Txn,A,C\nx,19.99.9,EUR\n", "", "export:2: amount"},
		{"thousands or a fraction", "reference=Txn,amount=A,currency=C", "Txn,A,C\nx,\"1,234\",EUR\n", "", "thousands or a fraction"},
		{"minor units with a point", "reference=Txn,minor=A,currency=C", "Txn,A,C\nx,19.99,EUR\n", "", "export:2: amount \"19.99\" is no whole number"},
		{"too many decimals", "reference=Txn,amount=A,currency=C", "Txn,A,C\nx,1.5,JPY\n", "", "more decimals"},
		{"currency unknown", "reference=Txn,amount=A,currency=C", "Txn,A,C\nx,1.5,XXQ\n", "", "ISO 4217"},
		{"time unreadable", "reference=Txn,at=T", "Txn,T\nx,yesterday\n", "", `time "yesterday"`},
		{"two objects on a line", "reference=/id", `{"id":"a"}{"id":"b"}`, "", "export:1: something stands behind"},
		{"a brace too many", "reference=/id", `{"id":"a"}}`, "", "export:1: something stands behind"},
		{"a JSON array", "reference=/id", `[{"id":"a"}]`, "", "jq -c"},
		{"UTF-16", "reference=Txn", "\xff\xfeT\x00x\x00n\x00\n\x00A\x00", "2: A alias= order= step= 0  ", ""},
		{"UTF-16 without a mark", "reference=Txn", "T\x00x\x00n\x00\n\x00A\x00", "2: A alias= order= step= 0  ", ""},
		{"big-endian UTF-16", "reference=Txn", "\xfe\xff\x00T\x00x\x00n\x00\n\x00A", "2: A alias= order= step= 0  ", ""},
		{"Windows-1251", "reference=Номер,order=Заказ", "\xcd\xee\xec\xe5\xf0;\xc7\xe0\xea\xe0\xe7\nA;1\n", "2: A alias= order=1 step= 0  ", ""},
		{"Windows-1252", "reference=Txn,order=Z\u00e4hler", "Txn;Z\xe4hler\nA;1\n", "2: A alias= order=1 step= 0  ", ""},
		{"points between thousands", "reference=Txn,amount=A,currency=C", "Txn;A;C\nx;1.234.567,89;EUR\n", "2: x alias= order= step= 123456789 EUR ", ""},
		{"blanks between thousands", "reference=Txn,amount=A,currency=C", "Txn;A;C\nx;1\u00a0234,56 ₽;RUB\ny;1 000;RUB\nz;1'234.50;CHF\n", "2: x alias= order= step= 123456 RUB \n3: y alias= order= step= 100000 RUB \n4: z alias= order= step= 123450 CHF ", ""},
		{"signs of currencies", "reference=Txn,amount=A,currency=C", "Txn;A;C\nx;€19,99;EUR\ny;$1.50;USD\nz;19,99 руб.;RUB\n", "2: x alias= order= step= 1999 EUR \n3: y alias= order= step= 150 USD \n4: z alias= order= step= 1999 RUB ", ""},
		{"money that went back", "reference=Txn,amount=A,currency=C", "Txn;A;C\nx;(19,99);EUR\ny;−1,50;EUR\nz;2;EUR\n", "4: z alias= order= step= 200 EUR ", ""},
		{"dates of people", "reference=Txn,at=T", "Txn;T\na;02.03.2026 10:00\nb;02.03.2026\nc;31/03/2026 10:00\nd;03/31/2026 10:00:05\ne;03/02/2026\nf;2 Mar 2026 10:00\n",
			"2: a alias= order= step= 0  2026-03-02T10:00:00\n3: b alias= order= step= 0  2026-03-02T00:00:00\n4: c alias= order= step= 0  2026-03-31T10:00:00\n5: d alias= order= step= 0  2026-03-31T10:00:05\n6: e alias= order= step= 0  \n7: f alias= order= step= 0  2026-03-02T10:00:00", ""},
		{"a named column is not there", "reference=Txn,order=order_id", "Txn,Order\nA,1\n", "", "names order_id"},
		{"a named member is nowhere", "reference=/id,order=/order_id", "{\"id\":\"a\"}\n{\"id\":\"b\"}\n", "1: a alias= order= step= 0  \n2: b alias= order= step= 0  ", "names /order_id"},
		{"a named member is in some", "reference=/id,order=/o", "{\"id\":\"a\"}\n{\"id\":\"b\",\"o\":\"7\"}\n", "1: a alias= order= step= 0  \n2: b alias= order=7 step= 0  ", ""},
		{"only the order's column", "order=shop_ref (metadata)", "id,Created date (UTC),Amount,Currency,PaymentIntent ID,Status,shop_ref (metadata)\nch_1,2026-03-02 10:00,19.99,eur,pi_1,Paid,1001\n", "2: pi_1 alias=ch_1 order=1001 step= 1999 EUR 2026-03-02T10:00:00", ""},
		{"a charge without its intent", "", "id,Created date (UTC),Amount,Currency,Status,order (metadata)\nch_1,2026-03-02 10:00,19.99,eur,Paid,1001\n", "2: ch_1 alias= order=1001 step= 1999 EUR 2026-03-02T10:00:00", ""},
		{"cut off in a line", "reference=Txn,status=S:ok", "Txn,S\nx,ok\ny", "2: x alias= order= step= 0  ", "export:3: the line ends"},
		{"columns that say nothing are missing", "reference=Txn", "Txn,S\nx\n", "2: x alias= order= step= 0  ", ""},
		{"a title twice", "reference=Txn,amount=A,currency=C", "Txn,A,A,C\nx,1,2,EUR\n", "", "two columns are called A"},
		{"an unused title twice", "reference=Txn", "Txn,A,A\nx,1,2\n", "2: x alias= order= step= 0  ", ""},
		{"a quote without an end", "reference=Txn,order=O", "Txn,O\nx,\"" + strings.Repeat(long+"\n", maxRecord/len(long)+10), "", "quote never closed"},
		{"a line without an end", "reference=/id", `{"id":"` + strings.Repeat("1", maxRecord+1<<17), "", "longer than"},
		{"much that is passed over", "reference=Txn,status=S:ok", "Txn,S,X\n" + strings.Repeat("x,no,"+long+"\n", maxRecord/len(long)+10) + "y,ok,\n", "line", ""},
		{"a cut quote", "reference=Txn,order=O", "Txn,O\nx,\"1\ny,2\n", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var columns *Columns
			if tt.columns != "" {
				c, err := ParseColumns(tt.columns)
				if err != nil {
					t.Fatal(err)
				}
				columns = &c
			}
			got, err := read(t, tt.text, columns)
			if tt.err == "" && tt.name != "a cut quote" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if tt.want == "line" {
				if len(got) != 1 {
					t.Errorf("%d successes, want one", len(got))
				}
				return
			}
			if tt.name != "a cut quote" && strings.Join(got, "\n") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if tt.name == "a cut quote" && err == nil {
				t.Errorf("a quoted field without an end is taken: %q", got)
			}
		})
	}
	if c, err := ParseColumns("reference=Txn,major=A"); err != nil || c.Minor || !slices.Equal(c.Amount, []string{"A"}) {
		t.Errorf("major=A: %+v, %v", c, err)
	}
	for _, text := range []string{"", "reference", "reference=", "nope=A", "reference=A,status=S"} {
		if _, err := ParseColumns(text); err == nil {
			t.Errorf("ParseColumns(%q): no error", text)
		}
	}
}

func FuzzExport(f *testing.F) {
	f.Add("Txn,A,C\nx,19.99,EUR\n")
	f.Add(`{"id":"pi_1","object":"payment_intent","amount":1999,"currency":"eur","status":"succeeded"}`)
	f.Add("Идентификатор платежа;Сумма платежа;Валюта платежа\n")
	columns, err := ParseColumns("reference=Txn,amount=A,currency=C")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, c := range []*Columns{nil, &columns} {
			got, err := read(t, text, c)
			for _, line := range got {
				if strings.Contains(line, ":  alias") || strings.Contains(line, " -") && err == nil && strings.Contains(line, "step= -") {
					t.Errorf("%q", line)
				}
			}
		}
	})
}

// What is passed over is counted and named, so that it can be weighed.
func TestSkippedIsNamed(t *testing.T) {
	for _, tt := range []struct{ name, text, want, skipped string }{
		{"Stripe's states", "id,Created date (UTC),Amount,Currency,PaymentIntent ID,Status\nch_1,2026-03-02 10:00,1,eur,pi_1,Paid\nch_2,2026-03-02 10:00,1,eur,pi_2,Dispute lost\nch_3,2026-03-02 10:00,1,eur,pi_3,Uncaptured\nch_4,2026-03-02 10:00,1,eur,pi_4,Failed\nch_5,2026-03-02 10:00,1,eur,pi_5,Failed\n",
			"pi_1 pi_2 pi_3", "state Failed ×2"},
		{"PayPal's types", "Type,Status,Currency,Gross,Transaction ID\nDonation Payment,Completed,EUR,1,A\nDirect Payment,Completed,EUR,1,B\nPayment Received,Completed,EUR,1,C\nRecurring Payment,Completed,EUR,1,D\nPreApproved Payment Bill User Payment,Completed,EUR,1,E\nGeneral Withdrawal,Completed,EUR,-5,F\nPayment Refund,Completed,EUR,-1,G\n",
			"A B C D E", "type General Withdrawal ×1, type Payment Refund ×1"},
		{"Adyen without the answers", "Psp Reference,Merchant Reference,Currency,Amount,Type\n8836,1001,EUR,1,Payment\n8837,1002,EUR,1,Payment\n", "", "state empty, or there is no column Acquirer Response ×2"},
		{"a register with other ids", "РЕЕСТР\nИдентификатор платежа;Сумма платежа;Валюта платежа\npay_1;19.99;RUB\npay_1;19.99;RUB\nИтого: 2\n", "", `Идентификатор платежа is not of this provider's form, such as "pay_1" ×2`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "export")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			skipped := map[string]int{}
			var got, why []string
			for s, err := range (Export{Path: path, Skipped: func(why string) { skipped[why]++ }}).Successes() {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, s.Reference)
			}
			for name, n := range skipped {
				why = append(why, fmt.Sprintf("%s ×%d", name, n))
			}
			slices.Sort(why)
			if strings.Join(got, " ") != tt.want || strings.Join(why, ", ") != tt.skipped {
				t.Errorf("got %q, skipped %q\nwant %q, %q", got, why, tt.want, tt.skipped)
			}
		})
	}
}

// What an export says of money that went back is told, with the payment's own reference,
// also where the entry is no success. What is none of ours, and what was not paid, is not.
func TestExportsOfMoneyThatWentBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, columns, want string }{
		{
			"stripe payments", "id,Created date (UTC),Amount,Currency,PaymentIntent ID,Status\n" +
				"ch_1,2026-03-02 10:00,19.99,eur,pi_1,Paid\nch_2,2026-03-02 10:00,19.99,eur,pi_2,Refunded\nch_3,2026-03-02 10:00,19.99,eur,pi_3,Dispute lost\n" +
				"ch_4,2026-03-02 10:00,19.99,eur,pi_4,Dispute won\nch_5,2026-03-02 10:00,19.99,eur,pi_5,Failed\n", "",
			"pi_1|pi_2 Status is Refunded|pi_3 Status is Dispute lost|pi_4",
		},
		{
			"stripe charges", `{"id":"ch_1","object":"charge","payment_intent":"pi_1","amount":1999,"currency":"eur","status":"succeeded","amount_refunded":0,"disputed":false}` + "\n" +
				`{"id":"ch_2","object":"charge","payment_intent":"pi_2","amount":1999,"currency":"eur","status":"succeeded","amount_refunded":5,"disputed":false}` + "\n" +
				`{"id":"ch_3","object":"charge","payment_intent":"pi_3","amount":1999,"currency":"eur","status":"succeeded","amount_refunded":0,"disputed":true}` + "\n", "",
			"pi_1|pi_2 /amount_refunded is 5|pi_3 /disputed is true",
		},
		{
			"paypal activity", "Transaction ID,Status,Currency,Gross,Type,Reference Txn ID\n" +
				"T1,Completed,EUR,19.99,Express Checkout Payment,\nT2,Completed,EUR,-19.99,Payment Refund,T1\nT3,Completed,EUR,-5.00,Chargeback,T1\nT4,Completed,EUR,-5.00,Payment Refund,\n", "",
			"T1|T1 type is Payment Refund, gone|T1 type is Chargeback, gone",
		},
		{
			"yookassa payments", `{"id":"p1","amount":{"value":"19.99","currency":"RUB"},"status":"succeeded","refunded_amount":{"value":"0.00"}}` + "\n" +
				`{"id":"p2","amount":{"value":"19.99","currency":"RUB"},"status":"succeeded","refunded_amount":{"value":"1.00"}}` + "\n", "",
			"p1|p2 /refunded_amount/value is 1.00",
		},
		{
			"adyen accounting", "Psp Reference,Merchant Reference,Record Type,Main Currency,Main Amount,Booking Date\n" +
				"A1,1001,Authorised,EUR,19.99,2026-03-02 10:00:00\nA1,1001,Settled,EUR,19.99,2026-03-02 10:00:00\nA1,1001,Chargeback,EUR,-19.99,2026-03-02 10:00:00\n", "",
			"A1|A1 type is Chargeback, gone",
		},
		{
			"any other", "Txn,Total,Cur,State,Back\n1,19.99,EUR,paid,0.00\n2,19.99,EUR,paid,3.00\n3,19.99,EUR,void,19.99\n", "reference=Txn,amount=Total,currency=Cur,status=State:paid,back=Back:*",
			"1|2 Back is 3.00|3 Back is 19.99, gone",
		},
		{
			"any other, by a word", "Txn,Total,Cur,State\n1,19.99,EUR,paid\n2,19.99,EUR,refunded\n", "reference=Txn,amount=Total,currency=Cur,status=State:paid,back=State:refunded|disputed",
			"1|2 State is refunded, gone",
		},
	} {
		path := filepath.Join(t.TempDir(), "export")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		e := Export{Path: path}
		if tt.columns != "" {
			columns, err := ParseColumns(tt.columns)
			if err != nil {
				t.Fatal(err)
			}
			e.Columns = &columns
		}
		var got []string
		for s, err := range e.Successes() {
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			text := strings.TrimSpace(s.Reference + " " + s.Back)
			if s.Gone {
				text += ", gone"
			}
			got = append(got, text)
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%s: %q, want %s", tt.name, got, tt.want)
		}
	}
	if _, err := ParseColumns("reference=Txn,back=State"); err == nil {
		t.Error("a column without its values is taken")
	}
}
