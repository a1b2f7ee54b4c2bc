package audit

import "regexp"

// format is an export that zabor knows by the titles or members that it has.
type format struct {
	name string
	has  []string // all of these
	Columns
}

// The order that a shop writes into a provider's metadata has no fixed name; these
// are the common ones. Others are given with --columns.
var (
	stripeOrder = metadata("", " (metadata)")
	objectOrder = metadata("/metadata/", "")
)

func metadata(before, after string) (columns []string) {
	for _, name := range []string{"zabor_order", "order", "order_id", "orderId", "order_number"} {
		columns = append(columns, before+name+after)
	}
	return columns
}

// yookassaID tells a payment from the head and foot lines of a register.
var yookassaID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f-]{27}$`)

// stripeStates are those of a payment that was made, whatever became of it since. An
// uncaptured one has reserved the money.
var stripeStates = []string{"Paid", "succeeded", "Refunded", "Partially Refunded", "Partial Refund", "Uncaptured", "requires_capture",
	"Disputed", "Dispute lost", "Dispute won", "Dispute needs response", "Dispute under review", "Needs response", "Under review", "Won", "Lost", "Early fraud warning"}

// stripeBack are the columns and states that say that money went back, or is disputed.
// Status has the state of a dispute; Amount Refunded is there in each export.
var stripeBack = []string{"Refunded", "Partially Refunded", "Partial Refund", "Disputed", "Dispute lost", "Dispute needs response", "Dispute under review", "Needs response", "Under review", "Lost"}

var stripeCharges = Columns{
	Back: []string{"Status"}, BackIs: stripeBack,
	Reference: []string{"id"}, Order: stripeOrder, Step: []string{"zabor_step (metadata)", "step (metadata)"},
	Amount: []string{"Amount"}, Currency: []string{"Currency"}, At: []string{"Created date (UTC)", "Created (UTC)"},
	Status: []string{"Status"}, Success: stripeStates,
}

// paypalNoCharge are the types of PayPal's activity that are no payment to the shop.
var paypalNoCharge = regexp.MustCompile(`(?i)\b(refund|reversal|withdraw\w*|transfer|conversion|hold|release|fee|fees|chargeback|authori[sz]ation|deposit|cancell?ation|correction|payout|adjustment|reserve|invoice sent|request)\b`)

// wentBack are types of entries that are money gone back.
var wentBack = regexp.MustCompile(`(?i)\b(refund\w*|reversal|chargeback)\b`)

// adyenBack are such records of Adyen's, which have the payment's own reference.
var adyenBack = regexp.MustCompile(`^(Refunded|RefundedExternally|Chargeback|ChargebackExternally|SecondChargeback)$`)

// formats, the first that fits counts.
var formats = []format{
	// Stripe's dashboard, «Payments», «Export»: amounts are decimals, times UTC.
	// A two-step call's reference is the intent, and the charge its alias.
	{name: "stripe payments", has: []string{"id", "PaymentIntent ID", "Amount", "Currency", "Status"}, Columns: Columns{
		Reference: []string{"PaymentIntent ID", "id"}, Alias: []string{"id"}, Order: stripeOrder, Step: []string{"zabor_step (metadata)", "step (metadata)"},
		Amount: []string{"Amount"}, Currency: []string{"Currency"}, At: []string{"Created date (UTC)", "Created (UTC)"},
		Status: []string{"Status"}, Success: stripeStates, Back: []string{"Status"}, BackIs: stripeBack,
	}},
	// The same without the intent's column: then the charge is all that is known.
	{name: "stripe charges", has: []string{"id", "Amount", "Currency", "Status", "Created date (UTC)"}, Columns: stripeCharges},
	{name: "stripe charges", has: []string{"id", "Amount", "Currency", "Status", "Created (UTC)"}, Columns: stripeCharges},
	// Stripe's API: payment intents and charges, an object on a line.
	{name: "stripe charge", has: []string{"/id", "/object", "/payment_intent", "/amount", "/currency", "/status"}, Columns: Columns{
		Back: []string{"/amount_refunded", "/disputed"}, BackIs: []string{"*"},
		Reference: []string{"/payment_intent"}, Alias: []string{"/id"}, Order: objectOrder, Step: []string{"/metadata/zabor_step", "/metadata/step"},
		Amount: []string{"/amount"}, Minor: true, Currency: []string{"/currency"}, At: []string{"/created"},
		Status: []string{"/status"}, Success: stripeStates,
	}},
	{name: "stripe payment intent", has: []string{"/id", "/object", "/amount", "/currency", "/status"}, Columns: Columns{
		Reference: []string{"/id"}, Alias: []string{"/latest_charge"}, Order: objectOrder, Step: []string{"/metadata/zabor_step", "/metadata/step"},
		Amount: []string{"/amount"}, Minor: true, Currency: []string{"/currency"}, At: []string{"/created"},
		Status: []string{"/status"}, Success: stripeStates,
	}},
	// PayPal's activity download. Money that went out is negative.
	{name: "paypal activity", has: []string{"Transaction ID", "Status", "Currency", "Gross", "Type"}, Columns: Columns{
		Reference: []string{"Transaction ID"}, Order: []string{"Invoice Number", "Invoice ID", "Custom Number"},
		Amount: []string{"Gross"}, Currency: []string{"Currency"},
		Status: []string{"Status"}, Success: []string{"Completed"},
		Type: []string{"Type"}, notCharge: paypalNoCharge, gone: wentBack, original: []string{"Reference Txn ID"},
	}},
	// PayPal's API: captures of the Orders API, an object on a line.
	{name: "paypal capture", has: []string{"/id", "/amount/value", "/amount/currency_code", "/status"}, Columns: Columns{
		Reference: []string{"/id"}, Order: []string{"/invoice_id", "/custom_id"}, Amount: []string{"/amount/value"}, Currency: []string{"/amount/currency_code"},
		At: []string{"/create_time"}, Status: []string{"/status"}, Success: []string{"COMPLETED", "PARTIALLY_REFUNDED", "REFUNDED"},
		Back: []string{"/status"}, BackIs: []string{"PARTIALLY_REFUNDED", "REFUNDED"},
	}},
	// YooKassa's register of payments, which has only payments that went through.
	// Its own head and foot lines stand around the table.
	{name: "yookassa register", has: []string{"Идентификатор платежа", "Сумма платежа", "Валюта платежа"}, Columns: Columns{
		Reference: []string{"Идентификатор платежа"}, Amount: []string{"Сумма платежа"}, Currency: []string{"Валюта платежа"},
		At: []string{"Время платежа", "Дата платежа"}, Order: []string{"Номер заказа", "order", "order_id"}, like: yookassaID,
	}},
	// YooKassa's API: payments, an object on a line.
	{name: "yookassa payment", has: []string{"/id", "/amount/value", "/amount/currency", "/status"}, Columns: Columns{
		Reference: []string{"/id"}, Order: objectOrder, Step: []string{"/metadata/zabor_step", "/metadata/step"},
		Amount: []string{"/amount/value"}, Currency: []string{"/amount/currency"}, At: []string{"/created_at"},
		Status: []string{"/status"}, Success: []string{"succeeded", "waiting_for_capture"}, Back: []string{"/refunded_amount/value"}, BackIs: []string{"*"},
	}},
	// Adyen's payment accounting report: one line for each event of a payment.
	{name: "adyen accounting", has: []string{"Psp Reference", "Merchant Reference", "Record Type", "Main Currency", "Main Amount"}, Columns: Columns{
		Reference: []string{"Psp Reference"}, Order: []string{"Merchant Reference"}, Amount: []string{"Main Amount"}, Currency: []string{"Main Currency"},
		At: []string{"Booking Date"}, Type: []string{"Record Type"}, Charge: []string{"Authorised"}, gone: adyenBack, original: []string{"Psp Reference"},
	}},
	// Adyen's received payment details: one line for each payment.
	{name: "adyen received payments", has: []string{"Psp Reference", "Merchant Reference", "Currency", "Amount", "Type"}, Columns: Columns{
		Reference: []string{"Psp Reference"}, Order: []string{"Merchant Reference"}, Amount: []string{"Amount"}, Currency: []string{"Currency"},
		At: []string{"Creation Date"}, Type: []string{"Type"}, Charge: []string{"Payment", "Authorised"},
		Status: []string{"Acquirer Response"}, Success: []string{"APPROVED", "Approved"},
	}},
}
