<?php

namespace App\MessageHandler;

use App\Entity\Payment;
use App\Message\CapturePayment;
use Doctrine\ORM\EntityManagerInterface;
use Stripe\PaymentIntent;
use Symfony\Component\Messenger\Handler\MessageHandlerInterface;

final class CapturePaymentHandler implements MessageHandlerInterface
{
    private $em;

    public function __construct(EntityManagerInterface $em)
    {
        $this->em = $em;
    }

    public function __invoke(CapturePayment $message)
    {
        $payment = $this->em->getRepository(Payment::class)->findOneBy(['orderId' => $message->orderId]); // ZB154
        if (null !== $payment) {
            return;
        }

        PaymentIntent::create(['amount' => 1999, 'currency' => 'eur']);

        $this->em->persist(new Payment($message->orderId));
        $this->em->flush();
    }
}
