<?php

namespace App\MessageHandler;

use App\Message\RefundOrder;
use Mollie\Api\MollieApiClient;
use Symfony\Component\Messenger\Attribute\AsMessageHandler;

final class RefundHandlers
{
    #[AsMessageHandler]
    public function refund(RefundOrder $message, MollieApiClient $mollie): void
    {
        $payment = $mollie->payments->get('tr_1');
        $mollie->payments->refund($payment, ['amount' => []]); // ZB150
    }
}
